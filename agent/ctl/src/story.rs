//! A daemon for tests: what it answers to which request, and what it was asked.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;

use super::client::{Call, Client, ClientError, Reply, Transport};
use api::{Code, ControlError};

/// What a made-up daemon answers, in the order in which it is asked the same.
#[derive(Clone, Default)]
pub(super) struct Story {
    answers: Rc<RefCell<VecDeque<(String, Reply)>>>,
    asked: Rc<RefCell<Vec<String>>>,
}

impl Story {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// It answers to `METHOD PATH` with this.
    pub(super) fn answers(&mut self, request: &str, answer: &impl Serialize) {
        self.answers_with(request, 200, &serde_json::to_string(answer).unwrap());
    }

    /// It does as it is told.
    pub(super) fn obeys(&mut self, request: &str) {
        self.answers_with(request, 204, "");
    }

    /// It refuses with the text of the code.
    pub(super) fn refuses(&mut self, request: &str, code: Code) {
        let error = ControlError::from(code);
        self.answers_with(request, code.status(), &serde_json::to_string(&error).unwrap());
    }

    pub(super) fn answers_with(&mut self, request: &str, status: u16, body: &str) {
        let reply = Reply { status, body: body.as_bytes().to_vec() };
        self.answers.borrow_mut().push_back((request.to_owned(), reply));
    }

    /// Who listens there is told these lines.
    pub(super) fn tells(&mut self, path: &str, lines: &[&str]) {
        self.answers_with(&format!("GET {path}"), 200, &lines.join("\n"));
    }

    pub(super) fn client(&self) -> Client {
        Client::new(Box::new(self.clone()))
    }

    /// The requests until now, with their bodies: `POST /v1/sessions {...}`.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }
}

impl Transport for Story {
    fn listen(&mut self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), ClientError> {
        let call = Call { method: "GET", path: path.to_owned(), body: None };
        let lines = String::from_utf8(self.call(call)?.body).unwrap();
        let _ = lines.lines().all(each);
        Ok(())
    }

    fn call(&mut self, call: Call) -> Result<Reply, ClientError> {
        let request = format!("{} {}", call.method, call.path);
        let body = call.body.map(|body| format!(" {}", String::from_utf8(body).unwrap())).unwrap_or_default();
        self.asked.borrow_mut().push(format!("{request}{body}"));
        let mut answers = self.answers.borrow_mut();
        let place = answers.iter().position(|(of, _)| *of == request);
        let place = place.unwrap_or_else(|| panic!("nothing is said of {request}"));
        Ok(answers.remove(place).unwrap().1)
    }
}
