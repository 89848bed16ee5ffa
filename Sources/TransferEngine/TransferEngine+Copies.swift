import EventHandlers
import LinuxSystem
import TransferModel

/// A client's file. It is closed on the copier's thread, which its file system may hold up.
final class ClientFile {
    let rawValue: CInt
    private let copier: FileWorker

    init?(_ descriptor: consuming OwnedDescriptor?, _ copier: FileWorker) {
        guard let descriptor else { return nil }
        rawValue = descriptor.take()
        self.copier = copier
    }

    deinit { copier.submit(.close(rawValue)) { _ in } }
}

/// An upload of which the file is being copied, or waits for that.
struct BodyCopy {
    let record: TransferStore.Record
    let source: ClientFile
    /// nil: the size of the file is not known yet.
    var target: OpenFile?
    var bytes: Int64 = 0
    /// Of the copier.
    var job: UInt64?
    /// Of all requests for it. Empty: they were refused, and no task comes of it.
    var handlers: [(TransferEngine.Addition) -> Void]
}

/// Copies of the files of uploads.
///
/// A client that does not wait for the end of a copy, or loses its connection meanwhile, asks for the same task
/// again: it joins the copy, and the session stays for it.
extension TransferEngine {
    /// - Returns: whether the file of a task with this tag is being copied.
    func joinCopy(tagged tag: String, of session: SessionID, _ handler: @escaping (Addition) -> Void) -> Bool
    {
        let copy = copies.first { _, copy in
            !tag.isEmpty && copy.record.tag == tag && copy.record.session == session && !copy.handlers.isEmpty
        }
        guard let id = copy?.key else { return false }
        copies[id]?.handlers.append(handler)
        return true
    }

    /// Whether a task may come to the session.
    func hasCopies(_ session: SessionID) -> Bool {
        copies.values.contains { $0.record.session == session && !$0.handlers.isEmpty }
    }

    func beginCopy(
        _ source: ClientFile, for record: TransferStore.Record, _ handler: @escaping (Addition) -> Void
    ) {
        guard !isCopierStuck else { return handler(.refused(Self.stuckFile)) }
        copies[record.id] = BodyCopy(record: record, source: source, handlers: [handler])
        if copyTimer?.deadline == nil { lookAtCopiesLater() }
        copier.submit(.measure(source.rawValue)) { [unowned self] result in
            switch result {
            case .measured(let bytes): copyBody(record.id, bytes)
            case .failed(let error): endCopy(record.id, refusal: "\(error)")
            case .done: endCopy(record.id, refusal: "only a regular file can be sent")
            }
        }
    }

    private func copyBody(_ id: TaskID, _ bytes: Int64) {
        guard let copy = copies[id] else { return }
        guard !copy.handlers.isEmpty else { return endCopy(id, refusal: Self.stuckFile) }
        // Its directory would be made again.
        guard sessions[copy.record.session] != nil else { return endCopy(id, refusal: "the session is gone") }
        guard queue.beginCopy(bytes: bytes) else {
            return endCopy(id, refusal: "there is no room for the file")
        }
        copies[id]?.bytes = bytes
        guard files.hasRoom(for: uncopiedBytes) else {
            return endCopy(id, refusal: "there is no room for the file")
        }
        let target: OpenFile
        do throws(SystemError) {
            target = try files.open(id, of: copy.record.session, .body)
        } catch {
            return endCopy(id, refusal: "\(error)")
        }
        copies[id]?.target = target
        let job = FileWorker.Job.copy(from: copy.source.rawValue, to: target.rawValue, bytes: bytes)
        copies[id]?.job = copier.submit(job) { [unowned self] result in
            if case .failed(let error) = result {
                endCopy(id, refusal: "\(error)")
            } else {
                endCopy(id)
            }
        }
    }

    /// The files are copied for nothing.
    func cancelCopies(where isVain: (BodyCopy) -> Bool) {
        for (id, copy) in copies where isVain(copy) {
            if let job = copy.job { copier.cancel(job) }
            if copy.bytes > 0 { queue.endCopy(bytes: copy.bytes) }
            copies[id]?.bytes = 0
        }
    }

    /// - Parameter refusal: why no task comes of it; nil: one does, unless it was refused meanwhile.
    private func endCopy(_ id: TaskID, refusal: String? = nil) {
        // Both files were open until here.
        guard let copy = copies.removeValue(forKey: id) else { return }
        if copy.bytes > 0 { queue.endCopy(bytes: copy.bytes) }
        let addition: Addition
        if let refusal {
            addition = .refused(refusal)
        } else if copy.handlers.isEmpty {
            addition = .refused(Self.stuckFile)
        } else {
            addition = admit(copy.record)
        }
        if case .refused = addition {
            files.remove(id, of: copy.record.session)
            removeIfUnused(copy.record.session)
        }
        for handler in copy.handlers { handler(addition) }
    }

    /// The room that the files which are being copied will take yet.
    var uncopiedBytes: Int64 {
        copies.values.reduce(0) { sum, copy in
            let copied = (try? copy.target?.size()).flatMap(\.self) ?? 0
            return sum + max(0, copy.bytes - copied)
        }
    }

    // MARK: Files that cannot be read

    private static let stuckFile = "the file system of a file to send does not answer"

    /// A file is on a file system that hangs: nothing else can be copied until that goes on.
    private var isCopierStuck: Bool {
        guard let since = copier.readingSince else { return false }
        return RunningClock.now() - since >= Int64(configuration.stallTime) * 1_000_000_000
    }

    private func lookAtCopiesLater() { copyTimer?.set(milliseconds: Int64(configuration.stallTime) * 250) }

    /// Refuses all copies while one is stuck: their clients wait for an answer.
    func lookAtCopies() {
        // All others were refused.
        guard copies.values.contains(where: { !$0.handlers.isEmpty }) else { return }
        lookAtCopiesLater()
        guard isCopierStuck else { return }
        cancelCopies { _ in true }
        for (id, copy) in copies {
            copies[id]?.handlers.removeAll()
            removeIfUnused(copy.record.session)
            for handler in copy.handlers { handler(.refused(Self.stuckFile)) }
        }
    }
}
