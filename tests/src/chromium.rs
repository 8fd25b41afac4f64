//! Chromium without a window, driven through the protocol of its developer tools.
//!
//! It reads commands from descriptor 3 and writes answers and events to 4, each a JSON text that ends with a
//! NUL (`--remote-debugging-pipe`): no port is opened.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Its command: descriptors 0 and 1 become 3 and 4. It is root, as the tests are, so it has no sandbox.
const RUN: &str = "exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars \
    --disable-background-networking --disable-component-update --disable-extensions --disable-sync \
    --window-size=1500,900 --user-data-dir=\"$1\" --remote-debugging-pipe about:blank \
    3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";

/// A browser with one page.
#[derive(Debug)]
pub struct Chromium {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    next: u64,
    session: Option<String>,
    /// What the page logged.
    pub said: Vec<String>,
    /// What it asked the network for.
    pub requests: Vec<String>,
}

impl Chromium {
    /// Starts it with a profile in an empty directory.
    pub fn start(profile: &Path) -> Self {
        let mut child = Command::new("/bin/sh")
            .args(["-c", RUN, "sh"])
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let (said, requests) = Default::default();
        let mut browser = Self { child, commands, answers, next: 0, session: None, said, requests };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    /// Sends a command and waits for what it answers.
    #[expect(clippy::needless_pass_by_value, reason = "parameters are written where they are sent")]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut command = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let message = self.read();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// The next message; events are noted.
    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser has ended: {:?}", self.child.try_wait());
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.said.push(params.to_string());
            }
            "Page.javascriptDialogOpening" => self.said.push(format!("dialog: {params}")),
            "Network.requestWillBeSent" => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
        message
    }

    /// Opens an address, and waits until the page says that it is ready. Gives the time from the beginning of
    /// the navigation, in milliseconds.
    pub fn open(&mut self, address: &str) -> u64 {
        // A page whose address differs in the fragment only would not be loaded.
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.requests.clear();
        self.call("Page.navigate", json!({"url": address}));
        self.until("document.getElementById('canvas')?.dataset.ready !== undefined");
        let ready = self.eval("Number(document.getElementById('canvas').dataset.ready)");
        self.settle();
        ready.as_f64().unwrap_or(0.0) as u64
    }

    /// The value of an expression, when it has one.
    pub fn eval(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until something holds.
    pub fn until(&mut self, script: &str) {
        let wait = format!(
            "(async () => {{ for (let n = 0; n < 3000; n++) {{ if ({script}) return true; \
             await new Promise((go) => setTimeout(go, 20)); }} return false; }})()"
        );
        let held = self.eval(&wait);
        assert_eq!(held, true, "{script}: {} {:?}", self.eval("document.body?.innerText"), self.said);
    }

    /// Waits until all that the view needs is drawn, and the panel shows it.
    pub fn settle(&mut self) {
        self.until("document.getElementById('canvas').dataset.whole === 'true'");
        self.eval("new Promise((go) => setTimeout(go, 450))");
        self.until("document.getElementById('canvas').dataset.whole === 'true'");
    }

    /// Presses a key, as `KeyboardEvent.key` calls it.
    pub fn key(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        let text = if key == "Enter" { "\r" } else { text };
        let code = if key == "Enter" { 13 } else { 0 };
        let down = json!({"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
    }

    /// Writes a text where the focus is.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Moves the mouse with its button from one place to the next; clicks if there is one only.
    pub fn drag(&mut self, places: &[(f64, f64)], modifiers: u32) {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return };
        let mut mouse = |kind: &str, (x, y): (f64, f64)| {
            let params = json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1,
                                "modifiers": modifiers});
            self.call("Input.dispatchMouseEvent", params);
        };
        mouse("mousePressed", *first);
        for place in &places[1..] {
            mouse("mouseMoved", *place);
        }
        mouse("mouseReleased", *last);
    }

    /// Turns the wheel at a place.
    pub fn wheel(&mut self, (x, y): (f64, f64), by: f64) {
        let params = json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by});
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Touches two places, and moves both fingers from place to place.
    pub fn pinch(&mut self, places: &[[(f64, f64); 2]]) {
        for (nth, fingers) in places.iter().enumerate() {
            let points: Vec<Value> = fingers.iter().map(|(x, y)| json!({"x": x, "y": y})).collect();
            let kind = if nth == 0 { "touchStart" } else { "touchMove" };
            self.call("Input.dispatchTouchEvent", json!({"type": kind, "touchPoints": points}));
        }
        self.call("Input.dispatchTouchEvent", json!({"type": "touchEnd", "touchPoints": []}));
    }

    /// Fails if the page logged anything, or asked for anything but itself.
    pub fn expect_quiet(&self) {
        assert_eq!(self.said, Vec::<String>::new());
        let other: Vec<_> = self.requests.iter().filter(|url| !url.starts_with("file:///")).collect();
        assert!(other.is_empty() && self.requests.len() <= 1, "{:?}", self.requests);
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let close = r#"{"id":0,"method":"Browser.close"}"#;
        let closed = self.commands.write_all(format!("{close}\0").as_bytes());
        if closed.is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}
