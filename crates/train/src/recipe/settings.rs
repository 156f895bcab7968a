//! Reading of single settings from a recipe file.

use serde::{Deserialize, Deserializer, de::Error as _};

use super::Recipe;
use turnwise_core::error::Error;

/// Deserializes a number and rejects 0.
pub(super) fn not_zero<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    let number = T::deserialize(from)?;
    match number == T::default() {
        true => Err(D::Error::custom("must be a number above 0")),
        false => Ok(Some(number)),
    }
}

impl Recipe {
    /// Name of a setting in recipe files. `auxiliary` and `held_out` have older names there, so that earlier versions can
    /// read the files.
    pub fn stored_name(setting: &str) -> &str {
        match setting {
            "auxiliary" => "beside",
            "held_out" => "aside",
            other => other,
        }
    }

    /// Converts serde's message about an unknown field to an error that suggests a similar setting.
    ///
    /// Returns `None` for any other message.
    pub fn unknown_setting(message: &str) -> Option<Error> {
        let names = message.strip_prefix("unknown field ")?;
        let mut names = names.split('`').skip(1).step_by(2);
        let unknown = names.next()?;
        Some(Error::unknown_name("setting", unknown, names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_setting_gets_a_suggestion() {
        let read = |text: &str| toml::from_str::<Recipe>(text).unwrap_err();
        let e = Recipe::unknown_setting(read("temprature = 1").message()).unwrap();
        assert_eq!(e.to_string(), "unknown setting `temprature`");
        assert_eq!(e.hint().unwrap(), "did you mean `temperature`?");
        assert!(Recipe::unknown_setting(read("steps = true").message()).is_none());
        assert_eq!(read("temperature = 0.0").message(), "must be a number above 0");
    }
}
