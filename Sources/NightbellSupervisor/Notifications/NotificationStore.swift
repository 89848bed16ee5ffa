import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// The file of all clients' notifications, which outlive the supervisor and the machine.
struct NotificationStore {
    private let file: DurableFile
    private let writer: BackgroundWriter

    /// - Parameter onChange: called on any thread, but never twice at a time.
    init(path: String, onChange: @escaping @Sendable (BackgroundWriter.Change) -> Void) {
        file = DurableFile(path: path)
        writer = BackgroundWriter(file, onChange: onChange)
    }

    /// Why the latest content is not on the disk; nil: it is, or is being written.
    var problem: String? {
        writer.problem.map { "notifications cannot be written, and are lost with the machine: \($0)" }
    }

    /// The entries on the disk: of the latest file that is whole.
    func read() throws(SystemError) -> [StoredNotification] {
        for (_, found) in try file.candidates() {
            guard case .content(let bytes) = found,
                let all = try? StoredNotifications(serializedBytes: bytes), all.isWhole
            else { continue }
            return all.notifications
        }
        return []
    }

    /// Has the file replaced soon.
    func write(_ notifications: [StoredNotification]) {
        writer.write(
            StoredNotifications.with {
                $0.notifications = notifications
                $0.isWhole = true
            }.record)
    }

    /// Returns when the latest content is on the disk, or an attempt from now on has failed.
    func flush() { writer.flush() }
}
