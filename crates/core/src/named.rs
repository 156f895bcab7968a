//! Enums whose variants have names.

/// Defines an enum whose variants have names on the command line and in files. The enum has a default variant, marked
/// with `#[default]`.
///
/// ```
/// turnwise_core::named_enum! {
///     /// Shape of a schedule.
///     pub enum Shape: "schedule" {
///         /// The rate stays the same.
///         #[default]
///         Constant = "constant",
///         /// The rate falls to 0.
///         Linear = "linear",
///     }
/// }
///
/// assert_eq!("linear".parse::<Shape>()?, Shape::Linear);
/// assert_eq!(Shape::ALL.map(Shape::name), ["constant", "linear"]);
/// assert_eq!("cubic".parse::<Shape>().unwrap_err().to_string(), "unknown schedule `cubic`");
/// # Ok::<(), turnwise_core::Error>(())
/// ```
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        pub enum $type:ident: $kind:literal { $($(#[$of_variant:meta])* $variant:ident = $name:literal),* $(,)? }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        pub enum $type {
            $($(#[$of_variant])* #[serde(rename = $name)] $variant),*
        }

        impl $type {
            /// All variants.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// Returns the name on the command line and in files.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),*
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::Error;

            fn from_str(text: &str) -> $crate::Result<Self> {
                match text {
                    $($name => Ok($type::$variant),)*
                    _ => Err($crate::Error::unknown_name($kind, text, [$($name),*])),
                }
            }
        }
    };
}
