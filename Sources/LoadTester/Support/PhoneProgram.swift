import Glibc

/// The program of the phones, which the supervisor and the floor start for each call.
enum PhoneProgram {
    static func path(_ runDirectory: RunDirectory) -> String { "\(runDirectory.programs)/nightbell-phone" }

    /// `PT_INTERP` of elf(5), which names the loader of shared libraries.
    private static let interpreter: UInt32 = 3

    /// Whether a program starts with the loader of shared libraries.
    static func needsLoader(_ path: String) throws(LoadError) -> Bool {
        var header = [UInt8](repeating: 0, count: 4_096)
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else {
            throw .missing("there is no \(path); scripts/build-phone makes it, --binaries says where it is")
        }
        defer { close(file) }
        guard pread(file, &header, header.count, 0) > 0 else { throw LoadError(failed: "read \(path)") }
        return header.withUnsafeBytes { bytes in
            let table = Int(clamping: bytes.loadUnaligned(fromByteOffset: 32, as: UInt64.self))
            let size = Int(bytes.loadUnaligned(fromByteOffset: 54, as: UInt16.self))
            let count = Int(bytes.loadUnaligned(fromByteOffset: 56, as: UInt16.self))
            return (0..<count).contains { index in
                let offset = table + index * size
                return offset + 4 <= bytes.count
                    && bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self) == interpreter
            }
        }
    }
}
