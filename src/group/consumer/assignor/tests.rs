//! Properties of the assignors.
