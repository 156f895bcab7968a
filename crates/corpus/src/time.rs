//! Points in time.

use std::{borrow::Cow, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Point in time, serialized as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Time(pub jiff::Timestamp);

impl Time {
    /// Parses an RFC 3339 time with any offset (`2026-03-02T09:14:00Z`), or a date with an optional time of day
    /// (`2026-03-02 09:14`). Without an offset, the time is in UTC.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return Some(Time(time));
        }
        text.parse::<jiff::civil::DateTime>().ok().and_then(Time::from_civil)
    }

    /// Returns the day in UTC.
    pub fn day(&self) -> jiff::civil::Date {
        self.0.to_zoned(jiff::tz::TimeZone::UTC).date()
    }

    /// Creates a time from a date and time of day in UTC. Returns `None` if the time is out of range.
    pub fn from_civil(time: jiff::civil::DateTime) -> Option<Self> {
        time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| Time(zoned.timestamp()))
    }

    /// Returns the date in UTC, such as `2026-03-02`.
    pub fn date(&self) -> String {
        self.0.strftime("%Y-%m-%d").to_string()
    }

    /// Returns the date and time in UTC, such as `2026-03-02 09:14`. At midnight, which usually stands for a day without a
    /// time, returns only the date.
    pub fn minute(&self) -> String {
        let text = self.0.strftime("%Y-%m-%d %H:%M").to_string();
        text.strip_suffix(" 00:00").map(str::to_owned).unwrap_or(text)
    }

    /// Creates a time from a Unix timestamp in seconds. Returns `None` if the timestamp is not finite or out of range.
    pub fn from_unix(seconds: f64) -> Option<Self> {
        let microseconds = seconds.is_finite().then(|| (seconds * 1e6).round() as i64)?;
        jiff::Timestamp::from_microsecond(microseconds).ok().map(Time)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("`{text}` is not a time; write it like 2026-03-02T09:14:00Z"))
        })
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "Point in time as RFC 3339. Without an offset, it is interpreted as UTC.",
            "examples": ["2026-03-02T09:14:00Z"]
        })
    }
}
