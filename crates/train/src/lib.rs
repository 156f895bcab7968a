//! Training of encoders on unlabeled dialogues.
//!
//! A [`recipe`] contains the settings of a run, [`objectives`] the losses, and [`trainer`] the training loop. The
//! function [`run()`] performs a whole run: it reads the dialogues, trains, evaluates, and saves the model. A
//! [`RunObserver`] receives the progress and the messages of the run.
//!
//! ```no_run
//! use turnwise_train::{RunObserver, RunOptions, recipe::{ObjectiveName, Recipe}};
//!
//! struct Printer;
//!
//! impl RunObserver for Printer {
//!     fn note(&self, message: &str) {
//!         println!("{message}");
//!     }
//! }
//!
//! # fn main() -> turnwise_core::Result<()> {
//! let (model, corpus) = ("models/all-MiniLM-L6-v2".to_owned(), vec!["chats/".into()]);
//! let recipe = Recipe::new(ObjectiveName::Responses, model, corpus);
//! let (outcome, _) = turnwise_train::run(recipe, &RunOptions::new("runs/chats"), &Printer)?;
//! println!("the model of step {} is in runs/chats/model", outcome.kept);
//! # Ok(())
//! # }
//! ```

mod context_cca;
pub mod data;
mod device;
mod gradients;
pub mod model;
mod neighbors;
pub mod objectives;
mod ops;
pub mod optimizer;
pub mod order;
pub mod recipe;
pub mod run;
mod scatter;
mod spool;
mod teacher;
pub mod trainer;
mod unique;

pub use run::{Outcome, RunObserver, RunOptions, run, sweep};

/// Defines an enum with names for the command line and recipe files. Each name must be the
/// identifier of its variant in kebab case, because serde derives the same name for recipe files.
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        pub enum $type:ident: $kind:literal { $($(#[$of_variant:meta])* $variant:ident = $name:literal),* $(,)? }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $type {
            $($(#[$of_variant])* $variant),*
        }

        impl std::str::FromStr for $type {
            type Err = turnwise_core::error::Error;

            fn from_str(text: &str) -> turnwise_core::error::Result<Self> {
                match text {
                    $($name => Ok($type::$variant),)*
                    _ => Err(turnwise_core::error::Error::unknown_name($kind, text, [$($name),*])),
                }
            }
        }
    };
}
pub(crate) use named_enum;
