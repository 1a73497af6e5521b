//! Chromium without a window in a lab node: what a user types and clicks, and what the page is
//! then.
//!
//! It is driven by the DevTools protocol over a pipe: JSON, with a zero behind each message.

use crate::stage::{Stage, text, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Descriptors 3 and 4 are those of the protocol. The lab is what the browser is kept in.
const BROWSER: &str = "exec chromium --headless=new --remote-debugging-pipe --no-sandbox \
    --disable-gpu --disable-dev-shm-usage --disable-extensions --disable-background-networking \
    --disable-component-update --disable-sync --no-first-run --window-size=1400,1800 \
    --user-data-dir=/tmp/browser about:blank 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
/// An answer that takes longer will not come.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a page is asked while it makes way for another may never be answered: it is asked again.
const PAGE_PATIENCE: Duration = Duration::from_secs(10);

pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Of the page that is open.
    session: Option<String>,
    asked: u64,
}

impl Browser {
    /// On node 1.
    pub fn open(stage: &Stage) -> Browser {
        let mut command = stage.command(1, &["sh", "-c", BROWSER]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a browser in the lab");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let parts = output.split(0).map_while(Result::ok);
            let mut parsed = parts.map(|part| serde_json::from_slice(&part).expect("JSON"));
            // Ends when the browser does, or when nobody listens any more.
            parsed.try_for_each(|message| sender.send(message))
        });
        Browser { child, input, messages, session: None, asked: 0 }
    }

    /// Sends a command and waits for its result; what it fails of is an error.
    pub fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.ask_within(PATIENCE, method, params).expect("the browser answers")
    }

    /// As [`Browser::ask`]; none if there is no answer in time.
    fn ask_within(
        &mut self,
        patience: Duration,
        method: &str,
        params: Value,
    ) -> Option<Result<Value, String>> {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut line = message.to_string().into_bytes();
        line.push(0);
        self.input.write_all(&line).expect("the browser reads");
        loop {
            let answer = self.messages.recv_timeout(patience).ok()?;
            if answer["id"] == self.asked {
                return Some(match answer.get("error") {
                    Some(error) => Err(error.to_string()),
                    None => Ok(answer["result"].clone()),
                });
            }
        }
    }

    /// Opens another page, as a link that somebody has typed.
    pub fn visit(&mut self, address: &str) {
        self.session = None;
        let target = self.ask("Target.createTarget", json!({ "url": address })).expect("a page");
        let params = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.ask("Target.attachToTarget", params).expect("it is there");
        self.session = attached["sessionId"].as_str().map(str::to_owned);
    }

    /// What an expression is worth in the page now; none while that page makes way for another.
    pub fn value(&mut self, expression: &str) -> Option<Value> {
        let params = json!({ "expression": expression, "returnByValue": true });
        let found = self.ask_within(PAGE_PATIENCE, "Runtime.evaluate", params)?.ok()?;
        if found.get("exceptionDetails").is_some() {
            return None;
        }
        Some(found["result"]["value"].clone())
    }

    /// Waits until the expression is true in the page.
    pub fn await_true(&mut self, expression: &str) {
        let body = "document.body?.innerText";
        let mut shown = Value::Null;
        let holds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(expression, || {
                let is_so = self.value(&format!("Boolean({expression})")) == Some(true.into());
                is_so.then_some(())
            });
        }));
        if let Err(panic) = holds {
            shown = self.value(body).unwrap_or(shown);
            eprintln!("--- page\n{}\n---", shown.as_str().unwrap_or_default());
            std::panic::resume_unwind(panic);
        }
    }

    /// The middle of an element, once it is there and shown.
    fn place(&mut self, selector: &str) -> (f64, f64) {
        let expression = format!(
            "(() => {{ const at = document.querySelector({selector:?}); \
             at.scrollIntoView({{ block: 'center' }}); const r = at.getBoundingClientRect(); \
             return r.width > 0 ? [r.x + r.width / 2, r.y + r.height / 2] : null; }})()"
        );
        until(&format!("{selector} is shown"), || {
            let place = self.value(&expression)?;
            Some((place[0].as_f64()?, place[1].as_f64()?))
        })
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64)) {
        let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
        self.ask("Input.dispatchMouseEvent", params).expect("the mouse is there");
    }

    pub fn click(&mut self, selector: &str) {
        let place = self.place(selector);
        self.mouse("mousePressed", place);
        self.mouse("mouseReleased", place);
    }

    pub fn type_text(&mut self, text: &str) {
        self.ask("Input.insertText", json!({ "text": text })).expect("it is typed");
    }

    /// A key that is no letter.
    pub fn press(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let params = json!({
                "type": kind, "key": key, "code": key, "text": text,
                "windowsVirtualKeyCode": code,
            });
            self.ask("Input.dispatchKeyEvent", params).expect("the keyboard is there");
        }
    }

    /// Drags one element onto another, by the events that the page is told of a drag: a window
    /// system, which makes them of a mouse, is not here.
    pub fn drag(&mut self, from: &str, to: &str) {
        let expression = format!(
            "(() => {{ const find = (selector) => document.querySelector(selector); \
             const [from, to] = [find({from:?}), find({to:?})]; \
             const how = {{ bubbles: true, cancelable: true, dataTransfer: new DataTransfer() }}; \
             const tell = (who, what) => who.dispatchEvent(new DragEvent(what, how)); \
             tell(from, 'dragstart'); const isTaken = !tell(to, 'dragover'); \
             if (isTaken) tell(to, 'drop'); tell(from, 'dragend'); \
             return from.draggable && isTaken; }})()"
        );
        assert_eq!(self.value(&expression), Some(true.into()), "{from} can be put on {to}");
    }

    /// What the page is as text.
    pub fn shown(&mut self) -> String {
        let shown = self.value("document.body.innerText").unwrap_or_default();
        text(shown.as_str().unwrap_or_default().as_bytes())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        // What does not close itself ends with the lab.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
