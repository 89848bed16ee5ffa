import EdgeTestSupport
import Glibc
import LinuxSystem

/// `slow-disk.py`: a file system of one file, of which the answers can be held back.
final class SlowDisk {
    enum Request: String {
        case attributes
        case reads
        case closes
    }

    static let isPossible = geteuid() == 0 && access("/dev/fuse", R_OK | W_OK) == 0

    private let directory: TemporaryDirectory
    private let process: Child
    private var pending = ""

    var file: String { directory.path + "/file" }

    init(fileBytes: Int) throws {
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let script = String(#filePath.prefix { _ in true }.dropLast("SlowDisk.swift".count)) + "slow-disk.py"
        process = try Child("/usr/bin/python3", script, directory.path, "\(fileBytes)")
        try wait(for: "ok")
    }

    func open() throws -> OwnedDescriptor { try OwnedDescriptor(opening: file, O_RDONLY) }

    /// Requests of this kind are not answered from now on.
    func hold(_ request: Request) throws {
        try process.send("hold \(request.rawValue)\n")
        try wait(for: "ok")
    }

    /// Waits for a request that is not answered.
    func waitForHeld(_ request: Request) throws { try wait(for: request.rawValue) }

    /// Answers the requests that are held so far. Those that follow are held as before.
    func step() throws {
        try process.send("step\n")
        try wait(for: "ok")
    }

    /// Everything is answered.
    func resume() throws {
        try process.send("go\n")
        try wait(for: "ok")
    }

    private func wait(for line: String) throws {
        while true {
            while let end = pending.firstIndex(of: "\n") {
                let found = pending[..<end] == line
                pending.removeSubrange(...end)
                if found { return }
            }
            guard let text = try process.hear(within: 30_000), !text.isEmpty else { throw TimedOut() }
            pending += text
        }
    }

    deinit {
        // It unmounts the file system.
        _ = shutdown(process.channel.rawValue, CInt(SHUT_WR))
        process.reap()
    }
}
