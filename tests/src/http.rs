//! Requests to servers of HTTP, without a process for each: tests poll, and starting a client takes many
//! times as long as an answer.

use std::io::{self, Read, Write};

/// Sends a request over a connection, and gives the status and the body of the answer, which with HTTP/1.0 is
/// what comes until the end of the connection. Its `accept` header takes everything where none is given.
///
/// # Errors
/// There is no whole answer, or it is no text.
pub fn request(
    connection: &mut (impl Read + Write),
    method: &str,
    path: &str,
    accept: Option<&str>,
    body: Option<&str>,
) -> io::Result<(u16, String)> {
    let mut head =
        format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\naccept: {}\r\n", accept.unwrap_or("*/*"));
    if let Some(body) = body {
        head += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    // Who refuses a request need not read all of it, and answers all the same.
    let _ = connection.write_all(format!("{head}\r\n{}", body.unwrap_or_default()).as_bytes());
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}
