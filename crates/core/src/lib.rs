//! Basic types that every turnwise crate uses: ids, the error type, atomic file writes, seeded random numbers and
//! vectors.
//!
//! There is one error type, [`Error`], for all crates. Its message describes the problem, its hint suggests a fix,
//! and its class determines the exit code of the program. Files are replaced atomically. Random numbers depend only on
//! the seed and are the same on every machine.
//!
//! ```
//! use turnwise_core::{error::Class, ids::UtteranceId};
//!
//! let id: UtteranceId = "deliveries-001#3".parse()?;
//! assert_eq!((id.dialogue.as_str(), id.turn.0), ("deliveries-001", 3));
//!
//! let error = "deliveries-001".parse::<UtteranceId>().unwrap_err();
//! assert_eq!(error.class(), Class::Input);
//! assert!(error.hint().unwrap().starts_with("an utterance id is DIALOGUE#TURN"));
//! # Ok::<(), turnwise_core::Error>(())
//! ```

pub mod error;
pub mod files;
pub mod ids;
mod named;
pub mod numbers;
pub mod random;
pub mod script;
pub mod stats;
pub mod vectors;
mod verified;

pub use error::{Error, IoContext, Result};
pub use ids::{DialogueId, IdKey, Seq, TurnNo, UtteranceId};
pub use vectors::Vectors;
pub use verified::Verified;
