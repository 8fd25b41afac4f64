//! Event formats: the text that describes an event's record, parsed.
