//! Settings by the names that a recipe's file has for them.

use serde::{Deserialize, Deserializer, de::Error as _};

use super::Recipe;
use turnwise_core::error::Error;

/// Whether a number is one that was not given.
pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// Refuses a 0 that was given: it would be taken for one that was not.
pub(super) fn not_zero<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    let number = T::deserialize(from)?;
    match is_zero(&number) {
        true => Err(D::Error::custom("it takes a number above 0")),
        false => Ok(number),
    }
}

impl Recipe {
    /// What is said of a setting that there is none of, from what the reader of recipes says of it.
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
    fn what_is_mistyped_is_told_with_what_was_meant() {
        let read = |text: &str| toml::from_str::<Recipe>(text).unwrap_err();
        let e = Recipe::unknown_setting(read("temprature = 1").message()).unwrap();
        assert_eq!(e.to_string(), "unknown setting `temprature`");
        assert_eq!(e.hint().unwrap(), "did you mean `temperature`?");
        assert!(Recipe::unknown_setting(read("steps = true").message()).is_none());
        assert_eq!(read("temperature = 0.0").message(), "it takes a number above 0");
    }
}
