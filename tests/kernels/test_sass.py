"""Instructions are counted by kind, whatever the disassembler writes around them; the code hash ignores names."""

from __future__ import annotations

import struct

import pytest

from kernels.sass import InstructionMix, code_sha256, registers

LISTING = """\
        /*0010*/                   LDG.E.128 R12, desc[UR14][R2.64] ;          /* 0x0000000a02097981 */
                                                                               /* 0x000ea2000c1e1900 */
        /*0020*/               @P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] &wr=0x2 ;  /* 0x00 */
        /*0030*/              @!P1 LDG.E.U8 R9, desc[UR14][R10.64] ;           /* 0x00 */
        /*0040*/              @UP2 LDS.S8 R20, [R36] ;                         /* 0x00 */
        /*0050*/                   LDS.128 R20, [R36] ;                        /* 0x00 */
        /*0060*/             @!UPT LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64] ;/* 0x00 */
        /*0070*/                   HMMA.16816.F32.BF16 R4, R8, R10, R4 ;       /* 0x00 */
        /*0080*/                   HGMMA.64x16x16.F32.BF16 R24, gdesc[UR4] ;   /* 0x00 */
        /*0090*/                   LDSM.16.MT88.4 R24, [R5+UR4] ;              /* 0x00 */
        /*1a090*/                  EXIT ;                                      /* 0x00 */
"""


def test_instructions_are_counted_by_kind() -> None:
    assert InstructionMix.of(LISTING) == InstructionMix(
        instructions=10, wide_loads=2, cp_async=1, matrix_loads=1, mma=2, byte_loads=2
    )


def _elf(*sections: tuple[str, bytes]) -> bytes:
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections) + b".shstrtab\0"
    body, headers, at = b"", [struct.pack("<IIQQQQ", 0, 0, 0, 0, 0, 0) + bytes(24)], 64
    for name, data in (*sections, (".shstrtab", names)):
        found = names.index(name.encode() + b"\0")
        headers.append(struct.pack("<IIQQQQ", found, 1, 0, 0, at + len(body), len(data)) + bytes(24))
        body += data
    head = b"\x7fELF\x02" + bytes(35) + struct.pack("<Q", 64 + len(body)) + bytes(10)
    return head + struct.pack("<HHH", 64, len(headers), len(headers) - 1) + body + b"".join(headers)


def test_code_hash_ignores_names_debug_data_and_launch_parameters() -> None:
    one = _elf((".text.first", b"code"), (".debug_line", b"a"), (".nv.constant0.first", b"x"))
    two = _elf((".text.second", b"code"), (".debug_line", b"bb"), (".nv.constant0.second", b"y"))
    assert code_sha256(one) == code_sha256(two)


@pytest.mark.parametrize("other", [((".text.k", b"cod2"),), ((".text.k", b"code"), (".nv.constant2.k", b"1"))])
def test_code_hash_tells_instructions_and_constant_tables_apart(other: tuple[tuple[str, bytes], ...]) -> None:
    assert code_sha256(_elf(*other)) != code_sha256(_elf((".text.k", b"code")))


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x01", _elf((".data", b"code"))])
def test_file_without_code_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"ELF|no code"):
        code_sha256(data)


def test_registers_are_read_from_the_attribute_that_the_driver_reads() -> None:
    counts = b"".join(struct.pack("<BBHII", 4, 0x2F, 8, symbol, count) for symbol, count in ((1, 40), (2, 189)))
    assert registers(_elf((".nv.info", b"\4\x11\x08\0" + bytes(8) + counts), (".text.k", b"code"))) == 189


def test_a_cubin_without_a_register_count_is_refused() -> None:
    with pytest.raises(ValueError, match="no register count"):
        registers(_elf((".text.k", b"code")))
