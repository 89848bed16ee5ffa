import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// The file of all clients' fetches: their intervals, scores and learned habits outlive the supervisor and
/// the machine. Habits lost with a disk that cannot be written are learned again.
struct FetchStore {
    private let file: DurableFile
    private let writer: BackgroundWriter

    /// - Parameter onChange: called on any thread, but never twice at a time.
    init(path: String, onChange: @escaping @Sendable (BackgroundWriter.Change) -> Void) {
        file = DurableFile(path: path)
        writer = BackgroundWriter(file, onChange: onChange)
    }

    /// Why the latest content is not on the disk; nil: it is, or is being written.
    var problem: String? {
        writer.problem.map { "the learned habits of fetches cannot be written: \($0)" }
    }

    /// The entries on the disk: of the latest file that is whole.
    func read() throws(SystemError) -> [StoredFetch] {
        for (_, found) in try file.candidates() {
            guard case .content(let bytes) = found,
                let fetches = try? StoredFetches(serializedBytes: bytes), fetches.isWhole
            else { continue }
            return fetches.fetches
        }
        return []
    }

    /// Has the file replaced soon.
    func write(_ fetches: [StoredFetch]) {
        writer.write(
            StoredFetches.with {
                $0.fetches = fetches
                $0.isWhole = true
            }.record)
    }

    /// Returns when the latest content is on the disk, or an attempt from now on has failed.
    func flush() { writer.flush() }
}
