//! Answers of the server: JSON, with nothing in it that could steer what shows it.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use client::words::printable;
use serde_json::{Value, json};

/// A request that was not carried out: what, and the way out.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    pub status: StatusCode,
    /// Stable kebab-case word.
    pub code: String,
    pub text: String,
}

impl Refusal {
    pub fn new(status: StatusCode, code: &str, text: impl Into<String>) -> Refusal {
        Refusal { status, code: code.to_owned(), text: text.into() }
    }
}

impl From<client::Error> for Refusal {
    fn from(error: client::Error) -> Refusal {
        match error {
            client::Error::Refused(failure) => {
                Refusal { status: StatusCode::CONFLICT, code: failure.code, text: failure.text }
            }
            error => {
                let text = client::told(&error);
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "no-daemon", text)
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let told = json!({ "code": printable(&self.code), "text": printable(&self.text) });
        (self.status, Json(told)).into_response()
    }
}

/// A value whose texts are made printable: they come from other nodes and other people's processes.
pub fn shown(value: Value) -> Response {
    Json(made_printable(value)).into_response()
}

fn made_printable(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(printable(&text)),
        Value::Array(values) => values.into_iter().map(made_printable).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (printable(&name), made_printable(value)))
                .collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn texts_at_any_depth_are_made_printable() {
        let hostile = json!({ "a\x07": ["b\x1b[2J", { "c": "d\u{202e}", "n": 1.5 }], "e": null });
        let shown = made_printable(hostile);
        assert_eq!(shown, json!({ "a?": ["b?[2J", { "c": "d?", "n": 1.5 }], "e": null }));
    }
}
