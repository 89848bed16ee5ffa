import Glibc
import LinuxSystem

/// The numbers under which the session's server shows notifications, and what has become of these, in a file
/// that ends with the session.
///
/// A supervisor's worker, or this process, may end after a server has shown a notification, or a person has
/// activated or closed it, and before that is recorded. The next one is asked to show it again: with its number
/// it replaces the first one on the screen, or is reported to have ended.
struct ShownNotifications {
    /// One showing of a notification.
    struct Key: Hashable {
        var number: UInt64
        var revision: UInt64
    }

    /// Why it is not shown any more.
    enum End: Hashable {
        case closed
        case activated(action: String)
    }

    private let path: String
    private let server: String
    private var ids: [Key: UInt32] = [:]
    private var ends: [UInt32: End] = [:]
    /// In the file.
    private var lineCount = 0

    /// Older lines are dropped.
    private static let mostLines = 256
    /// In bytes.
    private static let longestFile = 262_144
    /// Of actions with longer keys, in bytes, only the clients of others would know.
    private static let longestAction = 64

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
        var lines = text.split(separator: "\n").filter { $0.hasPrefix(server + " ") }
        if lines.count > Self.mostLines {
            // The oldest are hardly shown any more.
            lines.removeFirst(lines.count - Self.mostLines / 2)
            unsafe unlink(path)
            append(lines.joined(separator: "\n") + "\n")
        }
        ids = [:]
        ends = [:]
        for line in lines { take(line.split(separator: " ").dropFirst().map(String.init)) }
        lineCount = lines.count
    }

    /// The words of a line: `NUMBER REVISION ID`, `closed ID`, or `activated ID ACTION`.
    private mutating func take(_ words: [String]) {
        switch (words.first, words.count) {
        case ("closed", 2): if let id = UInt32(words[1]) { ends[id] = .closed }
        case ("activated", 3):
            guard let id = UInt32(words[1]), let action = Self.text(words[2]) else { return }
            ends[id] = .activated(action: action)
        case (_, 3):
            guard let number = UInt64(words[0]), let revision = UInt64(words[1]), let id = UInt32(words[2])
            else { return }
            ids[Key(number: number, revision: revision)] = id
            ends[id] = nil
        default: return
        }
    }

    /// The server's number of a showing; nil: it is not known to be shown.
    func id(of key: Key) -> UInt32? { ids[key] }

    /// The server's number of the last showing of a notification that is not known to have ended.
    func latest(of number: UInt64) -> UInt32? {
        ids.filter { $0.key.number == number && ends[$0.value] == nil }
            .max { $0.key.revision < $1.key.revision }?.value
    }

    /// The end of the one with this number; nil: it is not known to have ended.
    func end(of id: UInt32) -> End? { ends[id] }

    mutating func note(_ key: Key, _ id: UInt32) {
        guard ids[key] != id || ends[id] != nil else { return }
        add("\(key.number) \(key.revision) \(id)")
        ids[key] = id
        ends[id] = nil
    }

    /// Of one that was shown here; the first end counts.
    mutating func noteEnd(of id: UInt32, _ end: End) {
        guard ends[id] == nil, ids.values.contains(id) else { return }
        switch end {
        case .closed: add("closed \(id)")
        case .activated(let action):
            guard !action.isEmpty, action.utf8.count <= Self.longestAction else { return }
            add("activated \(id) \(Self.digits(action))")
        }
        ends[id] = end
    }

    private mutating func add(_ words: String) {
        if lineCount >= 2 * Self.mostLines { read() }
        lineCount += 1
        append("\(server) \(words)\n")
    }

    /// Its bytes in hexadecimal digits: a server may send any text.
    private static func digits(_ text: String) -> String {
        text.utf8.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    private static func text(_ digits: String) -> String? {
        let digits = Array(digits.utf8)
        var bytes: [UInt8] = []
        for index in stride(from: 0, to: digits.count - 1, by: 2) {
            guard let byte = UInt8(String(decoding: digits[index...index + 1], as: UTF8.self), radix: 16)
            else {
                return nil
            }
            bytes.append(byte)
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private func append(_ text: String) {
        guard
            let file = try? OwnedDescriptor(
                opening: path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, mode: 0o600)
        else { return }
        let bytes = Array(text.utf8)
        // One write, so that no reader sees a part of it.
        _ = unsafe write(file.rawValue, bytes, bytes.count)
    }
}
