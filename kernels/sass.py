"""Reading machine code: which instructions a cubin holds, and a hash of them that ignores names and debug data."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

_OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)", re.MULTILINE)
_BYTE = re.compile(r"^LD[GS]\b.*\.[US]8\b")


@dataclass(frozen=True, slots=True)
class InstructionMix:
    """Instructions of a kernel by kind, counted once each as they stand in the code (not as executed)."""

    instructions: int
    wide_loads: int
    cp_async: int
    matrix_loads: int
    mma: int
    byte_loads: int

    @classmethod
    def of(cls, sass: str) -> InstructionMix:
        """Count a cuobjdump or nvdisasm listing.

        wide_loads: 128-bit loads of global memory into registers. cp_async: copies from global to shared memory past
        the registers (LDGSTS, bulk UBLKCP). matrix_loads: ldmatrix (LDSM), which feeds tensor cores from 16-bit tiles.
        mma: tensor-core products (HMMA, QMMA, HGMMA, ...). byte_loads: single bytes, global or shared.
        """
        opcodes = _OPCODE.findall(sass)
        return cls(
            instructions=len(opcodes),
            wide_loads=sum(op.startswith("LDG.") and ".128" in op for op in opcodes),
            cp_async=sum(op.startswith(("LDGSTS", "UBLKCP")) for op in opcodes),
            matrix_loads=sum(op.startswith("LDSM") for op in opcodes),
            mma=sum("MMA" in op.partition(".")[0] for op in opcodes),
            byte_loads=sum(bool(_BYTE.match(op)) for op in opcodes),
        )


def code_sha256(cubin: bytes) -> str:
    """SHA-256 of the machine code and its constant tables: equal for two builds that run the same instructions.

    Section names, symbols, line tables and the launch's own parameters are left out. ValueError when it is no 64-bit
    ELF with code in it.
    """
    digest = hashlib.sha256()
    found = False
    for name, body in _sections(cubin):
        # .nv.constant0 is the parameter block, filled at launch; 2 and 3 hold what the compiler itself put there.
        if name.startswith((".text.", ".nv.constant2", ".nv.constant3")):
            found = found or name.startswith(".text.")
            digest.update(struct.pack("<Q", len(body)) + body)
    if not found:
        raise ValueError("the cubin holds no code section")
    return digest.hexdigest()


def registers(cubin: bytes) -> int:
    """Registers a thread of a cubin's kernel, from the attribute that the driver itself reads; ValueError without one.

    Of several functions in the file the one with most, as the launch has to provide it.
    """
    # EIATTR_REGCOUNT of .nv.info: format, attribute, size of what follows, symbol, count.
    head = bytes((4, 0x2F, 8, 0))
    found = []
    for name, body in _sections(cubin):
        at = body.find(head) if name == ".nv.info" else -1
        while at >= 0:
            found.append(int(struct.unpack_from("<I", body, at + 8)[0]))
            at = body.find(head, at + 12)
    if not found:
        raise ValueError("the cubin names no register count")
    return max(found)


def _sections(elf: bytes) -> list[tuple[str, bytes]]:
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    # Elf64_Shdr: name, type, flags, address, offset, size.
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * i) for i in range(count)]
    strings = elf[headers[names_at][4] :]
    no_bits = 8
    return [
        (strings[h[0] : strings.index(b"\0", h[0])].decode(), elf[h[4] : h[4] + h[5]])
        for h in headers
        if h[1] != no_bits
    ]
