//! Requests read, and answers of a broker with some groups.
