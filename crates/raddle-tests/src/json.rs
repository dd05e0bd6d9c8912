//! Documents that the tools print.

use anyhow::{Context, Result};
use serde_json::Value;

/// Returns a list of a document.
///
/// # Errors
/// If the field is missing, or no list.
pub fn list<'a>(value: &'a Value, field: &str) -> Result<&'a [Value]> {
    let list = value[field].as_array();
    Ok(list.with_context(|| format!("no list {field} in {value}"))?)
}
