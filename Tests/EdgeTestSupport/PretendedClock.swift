import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem

/// A clock on the wall for the programs with this environment. The one of the machine that runs the tests is not set.
final class PretendedClock {
    private let directory: TemporaryDirectory
    private let change: OwnedDescriptor

    var environment: [String: String] {
        ["LD_PRELOAD": directory.path + "/clock.so", "PRETENDED_CLOCK": directory.path]
    }

    init() throws {
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let source = #filePath.split(separator: "/").dropLast().joined(separator: "/")
        let compiler = try output(
            "/usr/bin/env", "PATH=" + (ProcessInfo.processInfo.environment["PATH"] ?? ""), "clang", "-shared",
            "-fPIC", "-o", directory.path + "/clock.so", "/\(source)/pretended-clock.c")
        guard compiler.code == 0 else { throw Unexpected("clang: \(compiler.text)") }
        let path = directory.path + "/set"
        _ = try systemCall("mkfifo") { mkfifo(path, 0o666) }
        chmod(path, 0o666)
        change = try OwnedDescriptor(opening: path, O_RDWR | O_NONBLOCK)
    }

    /// Sets it on, or back.
    func set(by seconds: Int) throws {
        let path = directory.path + "/offset"
        _ = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o644)
        try SmallFile.write("\(seconds)", to: path)
        let bytes = [UInt8](repeating: 1, count: 8)
        _ = try systemCall("write") { write(change.rawValue, bytes, bytes.count) }
    }
}
