//! The JSON Schema of the canonical format, derived from the types that read it.

use crate::Dialogue;

/// Returns the JSON Schema of one line in a canonical JSONL file.
pub fn json_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Dialogue);
    schema.insert("title".into(), "turnwise dialogue".into());
    schema.insert("$id".into(), "turnwise/dialogue/1".into());
    schema.to_value()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_schema_lists_the_required_fields() {
        let schema = super::json_schema();
        assert_eq!(schema["required"], serde_json::json!(["id", "turns"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["turns"]["type"], "array");
    }
}
