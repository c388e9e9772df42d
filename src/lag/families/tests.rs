//! Families as Prometheus reads them.
