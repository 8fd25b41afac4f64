//! Bounds of JSON texts that anybody may have written.

/// How many values a JSON text has at most: before each but the first, there is an opening bracket or a
/// comma. Text that is no JSON has some number. Parsers take memory for each value, of which a text can have
/// as many as bytes.
pub fn values(text: &str) -> usize {
    let (mut values, mut is_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' | b',' if !is_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (text, count) in
            [("1", 1), ("[]", 2), ("[1,2]", 3), (r#"{"a":[1,{}],"b":",[\",{"}"#, 6), (r#""\\",["#, 3)]
        {
            assert_eq!(values(text), count, "{text}");
        }
    }
}
