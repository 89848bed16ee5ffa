import Glibc
import LinuxSystem

/// The numbers under which the session's server shows notifications, in a file that ends with the session.
///
/// A supervisor's worker, or this process, may end after a server has shown a notification and before that is
/// recorded. The next one is asked to show it again: with its number it replaces the first one on the screen.
struct ShownNotifications {
    /// One showing of a notification.
    struct Key: Hashable {
        var number: UInt64
        var revision: UInt64
    }

    private let path: String
    private let server: String
    private var ids: [Key: UInt32] = [:]
    /// In the file.
    private var lineCount = 0

    /// Older lines are dropped.
    private static let mostLines = 256
    /// In bytes.
    private static let longestFile = 65_536

    /// - Parameters:
    ///   - directory: of the user's session. Without it nothing is remembered.
    ///   - server: names the server as long as it lives.
    init(directory: String, server: String) {
        path = directory + "/nightbell-notifications"
        self.server = server
        read()
    }

    private mutating func read() {
        switch try? SmallFile.find(path, limit: Self.longestFile) {
        case .content(let bytes): take(String(decoding: bytes, as: UTF8.self))
        // It would never be read again.
        case .stranger: unsafe unlink(path)
        case nil: return
        }
    }

    private mutating func take(_ text: String) {
        var entries: [(line: Substring, key: Key, id: UInt32)] = []
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 4, words[0] == server, let number = UInt64(words[1]),
                let revision = UInt64(words[2]), let id = UInt32(words[3])
            else { continue }
            entries.append((line, Key(number: number, revision: revision), id))
        }
        if entries.count > Self.mostLines {
            // The oldest are hardly shown any more.
            entries.removeFirst(entries.count - Self.mostLines / 2)
            unsafe unlink(path)
            append(entries.map(\.line).joined(separator: "\n") + "\n")
        }
        ids = Dictionary(entries.map { ($0.key, $0.id) }) { $1 }
        lineCount = entries.count
    }

    /// The server's number; 0: it is not known to be shown.
    func id(of key: Key) -> UInt32 { ids[key] ?? 0 }

    mutating func note(_ key: Key, _ id: UInt32) {
        guard ids[key] != id else { return }
        if lineCount >= 2 * Self.mostLines { read() }
        ids[key] = id
        lineCount += 1
        append("\(server) \(key.number) \(key.revision) \(id)\n")
    }

    private func append(_ text: String) {
        guard
            let file = try? OwnedDescriptor(
                opening: path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, mode: 0o600)
        else { return }
        let bytes = Array(text.utf8)
        // One write, so that no reader sees a part of it.
        _ = unsafe write(file.rawValue, bytes, bytes.count)
    }
}
