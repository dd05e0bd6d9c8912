//! Documents and their schemas.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Checks a value against a part of the schema. Fields that the schema doesn't have are errors.
pub(crate) fn conforms(value: &Value, part: &Value, whole: &Value, at: &str) -> Result<()> {
    if let Some(reference) = part["$ref"].as_str() {
        let name = reference.trim_start_matches("#/$defs/");
        return conforms(value, &whole["$defs"][name], whole, at);
    }
    let is_kind = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    };
    let kinds = match &part["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    ensure!(
        kinds.iter().any(is_kind),
        "{at}: {value} is not of type {kinds:?}"
    );
    if let Some(words) = part["enum"].as_array() {
        ensure!(words.contains(value), "{at}: {value} is none of {words:?}");
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        conforms(item, &part["items"], whole, &format!("{at}[{number}]"))?;
    }
    let Some(fields) = value.as_object() else {
        return Ok(());
    };
    for name in part["required"].as_array().into_iter().flatten() {
        let name = name.as_str().context("a name")?;
        ensure!(fields.contains_key(name), "{at} has no {name}");
    }
    for (name, field) in fields {
        let known = &part["properties"][name];
        ensure!(known.is_object(), "{at}: the schema has no {name}");
        conforms(field, known, whole, &format!("{at}.{name}"))?;
    }
    Ok(())
}
