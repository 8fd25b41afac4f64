use super::expression::{DEPTH_MAX, TOKENS_MAX};
use super::*;

#[test]
fn operators_bind_as_in_c() {
    let name = |name: &'static str| Expr::Name(name).into();
    assert_eq!(
        joined(&["a | b & 3 << 1", "? !c->d.e : 0x10"], &[]),
        Ok(Expr::Choice(
            Expr::Binary(
                Op::Or,
                name("a"),
                Expr::Binary(
                    Op::And,
                    name("b"),
                    Expr::Binary(Op::Lsh, Expr::Number(3).into(), Expr::Number(1).into()).into()
                )
                .into()
            )
            .into(),
            Expr::Not(Expr::Member(Expr::Member(name("c"), "d", true).into(), "e", false).into()).into(),
            Expr::Number(16).into(),
        ))
    );
    assert_eq!(
        expression("f(a, 1)[2]"),
        Ok(Expr::Index(Expr::Call("f", vec![Expr::Name("a"), Expr::Number(1)]).into(), 2))
    );
}

#[test]
fn a_description_has_its_parts() {
    let text = "# a comment\nwake, up(p, flags)\n    about p->pid\n    let a = flags   # why\n    x = a\n    p, flags\n\nfree()\n";
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.len(), 2);
    assert_eq!(
        (parsed[0].names.as_slice(), parsed[0].args.as_slice()),
        (["wake", "up"].as_slice(), ["p", "flags"].as_slice())
    );
    assert_eq!(parsed[0].about, Some(Expr::Member(Expr::Name("p").into(), "pid", true)));
    assert_eq!(parsed[0].lets, [("a", Expr::Name("flags"))]);
    let named = |name| (name, Expr::Name(name));
    assert_eq!(parsed[0].fields, [("x", Expr::Name("a")), named("p"), named("flags")]);
    assert!(parsed[1].args.is_empty());
}

#[test]
fn names_and_arguments_go_on_in_the_next_line() {
    let parsed = parse("one, two,\n        three(a,\n        b)\n    x = a\n").unwrap();
    assert_eq!((&*parsed[0].names, &*parsed[0].args), (&["one", "two", "three"][..], &["a", "b"][..]));
    assert_eq!(parsed[0].fields, [("x", Expr::Name("a"))]);
    for text in ["one,\n        two", "one(a,\n        b", "(a)"] {
        assert_eq!(parse(text).map_err(|error| error.line), Err(1), "{text}");
    }
}

#[test]
fn texts_stand_in_quotes() {
    let name = |name| Expr::Name(name);
    assert_eq!(
        expression("string(a, \"no (device)\")"),
        Ok(Expr::Call("string", vec![name("a"), Expr::Text("no (device)")]))
    );
    assert_eq!(
        expression("container(outer, inner, p)->x"),
        Ok(Expr::Member(
            Expr::Call("container", vec![name("outer"), name("inner"), name("p")]).into(),
            "x",
            true
        ))
    );
    assert_eq!(expression("string(a, \"no").map_err(|error| error.at), Err(10));
}

#[test]
fn errors_in_expressions_have_their_position() {
    for (text, at) in [
        ("a+", 2),
        ("a + )", 4),
        ("f(a", 3),
        ("a b", 2),
        ("a->", 3),
        ("a#", 1),
        ("x[y]", 2),
        ("1z", 0),
        ("'ab'", 0),
    ] {
        assert_eq!(expression(text).map_err(|error| error.at), Err(at), "{text}");
    }
    assert!(expression(&"(".repeat(TOKENS_MAX + 1)).is_err());
    assert!(expression(&"(".repeat(TOKENS_MAX - 1)).is_err());
    let nested = |depth| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(expression(&nested(DEPTH_MAX - 1)), Ok(Expr::Name("a")));
    assert_eq!(expression(&nested(DEPTH_MAX)).map_err(|error| error.at), Err(DEPTH_MAX));
    assert_eq!(expression("$retval"), Ok(Expr::Name("$retval")));
}

#[test]
fn macros_are_put_in() {
    let parsed =
        parse("def both(x, y) = x->y1 +\n        y\ne(a)\n    needs a\n    f = both(a, 'B')\n").unwrap();
    let member = Expr::Member(Expr::Name("a").into(), "y1", true);
    assert_eq!(parsed[0].fields[0].1, Expr::Binary(Op::Add, member.into(), Expr::Number(66).into()));
    assert_eq!(parsed[0].needs, [Expr::Name("a")]);
    assert!(parse("def f(x) = x\ne()\n    f = f(1, 2)\n").is_err());
}

#[test]
fn a_macro_may_be_about_the_page_of_a_call() {
    let text = "def frame(p) = p ? pfn(p) : -1\n\
        e(page, status)\n    pfn = frame(page)\n    error = blk_error(status)\n";
    let call = |function, of| Expr::Call(function, vec![Expr::Name(of)]);
    let frame = Expr::Choice(
        Expr::Name("page").into(),
        call("pfn", "page").into(),
        Expr::Negate(Expr::Number(1).into()).into(),
    );
    assert_eq!(parse(text).unwrap()[0].fields, [("pfn", frame), ("error", call("blk_error", "status"))]);
}

#[test]
fn errors_say_where() {
    for (text, line) in
        [("  x = 1", 1), ("e(a)\n  x = (a", 2), ("e(a)\n  x = a a", 2), ("e", 1), ("e()\n x = $", 2)]
    {
        assert_eq!(parse(text).map_err(|error| error.line), Err(line), "{text}");
    }
}
