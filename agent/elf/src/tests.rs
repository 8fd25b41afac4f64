use super::{
    Machine,
    usdt::{Argument, Marker, Operand},
};

fn parsed(text: &str, machine: Machine) -> Result<Vec<Argument>, String> {
    let marker = Marker {
        provider: String::new(),
        name: String::new(),
        address: 0,
        offset: 0,
        semaphore: None,
        arguments: text.to_owned(),
    };
    marker.parse_arguments(machine).map_err(|error| error.to_string())
}

fn memory(base: &str, index: Option<(&str, u8)>, displacement: i64, symbol: Option<&str>) -> Operand {
    Operand::Memory {
        base: (!base.is_empty()).then(|| base.to_owned()),
        index: index.map(|(name, scale)| (name.to_owned(), scale)),
        displacement,
        symbol: symbol.map(str::to_owned),
    }
}

#[test]
fn operands_of_x86_are_understood() {
    let operands = |text| -> Vec<Operand> {
        parsed(text, Machine::X86_64).unwrap().into_iter().map(|argument| argument.operand).collect()
    };
    assert_eq!(
        operands(
            "-4@%edi 8@-16(%rbp) 4@$5 -8@$-1 8@(%rax,%rbx,8) 8@16(,%rcx,4) 4@counter+8(%rip) 2@counter(%rip)"
        ),
        [
            Operand::Register("edi".into()),
            memory("rbp", None, -16, None),
            Operand::Constant(5),
            Operand::Constant(-1),
            memory("rax", Some(("rbx", 8)), 0, None),
            memory("", Some(("rcx", 4)), 16, None),
            memory("rip", None, 8, Some("counter")),
            memory("rip", None, 0, Some("counter")),
        ]
    );
    let float = &parsed("8f@%xmm1", Machine::X86_64).unwrap()[0];
    assert!(float.float && float.size == 8);
    assert_eq!(operands("8@$18446744073709551615"), [Operand::Constant(-1)]);
    assert_eq!(operands("4@0x601040"), [memory("", None, 0x60_1040, None)]);
}

#[test]
fn operands_of_arm64_are_understood() {
    let arguments =
        parsed("-4@w0 8@[sp, 16] 8@[x1] 8@[x1, x2, lsl 3] 4@-5 8@[x29, #-8]", Machine::Aarch64).unwrap();
    let operands: Vec<Operand> = arguments.into_iter().map(|argument| argument.operand).collect();
    assert_eq!(
        operands,
        [
            Operand::Register("w0".into()),
            memory("sp", None, 16, None),
            memory("x1", None, 0, None),
            memory("x1", Some(("x2", 8)), 0, None),
            Operand::Constant(-5),
            memory("x29", None, -8, None),
        ]
    );
}

#[test]
fn what_is_no_argument_is_named_with_its_position() {
    let error = |text| parsed(text, Machine::X86_64).unwrap_err();
    assert_eq!(error("4@$1 3@%eax"), "argument 2 (`3@%eax`) is not understood: its size is not 1, 2, 4 or 8");
    assert!(error("4@(%rax").ends_with("a bracket is not closed"));
    assert!(error("4@").ends_with("nothing is behind its @"));
    assert!(error("4@(%rax,%rbx,3)").ends_with("its scale is not 1, 2, 4 or 8"));
    for text in
        ["@", "4@", "4@%", "4@$x", "x@%eax", "4@(rax)", "4@a+b", "4@(%a,%b,1,2)", "99999999999@$1", "4@é"]
    {
        let _ = parsed(text, Machine::X86_64);
        let _ = parsed(text, Machine::Aarch64);
    }
}
