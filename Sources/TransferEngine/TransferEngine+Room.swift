import EventHandlers
import LinuxSystem
import TransferModel

/// The room for downloads: of the user, which the queue counts, and on the file system.
///
/// A download of known length is begun only if it fits beside all that others will still write. One of unknown
/// length takes only room that no other one has been promised. So the file system is full for a download that has begun
/// only if another program fills it, or its own length is unknown; it gives back its part then.
extension TransferEngine {
    /// The body of a response is about to be stored.
    ///
    /// - Parameter total: bytes of the whole; nil: unknown.
    func findRoom(_ attempt: Attempt, _ total: Int64?) {
        guard let task = tasks[attempt.id] else { return }
        if let total { reserve(attempt, total) }
        guard attempt.stop == nil else { return }
        // One of unknown length, for which there was too little, needs more than that.
        let needed = total ?? task.bytesOnFullDisk + task.bytesOnFullDisk / 8
        let missing = needed - task.bytes
        // The file system needs something for its own records.
        guard missing <= 0 || hasUnpromisedRoom(for: missing + missing / 128, of: attempt) else {
            attempt.stop = .diskFull
            return
        }
        tasks[attempt.id]?.isShortOfDisk = false
    }

    /// Reserves room of the user.
    func reserve(_ attempt: Attempt, _ bytes: Int64) {
        guard let task = tasks[attempt.id] else { return }
        // A server may promise any length.
        let (sum, isTooLarge) = task.bodyBytes.addingReportingOverflow(bytes)
        switch queue.reserve(attempt.id, bytes: isTooLarge ? .max : sum) {
        case .granted: break
        case .later: attempt.stop = .noRoom
        case .never: attempt.stop = .tooLarge
        }
    }

    /// Whether the file system has room for the next bytes of a body, until it is looked at again.
    func hasRoom(for count: Int, of attempt: Attempt) -> Bool {
        guard let total = attempt.facts.total else {
            return hasUnpromisedRoom(for: max(Int64(count), files.roomDistance), of: attempt)
        }
        return files.hasRoom(for: max(Int64(count), min(files.roomDistance, total - attempt.facts.bytes)))
    }

    /// Whether the file system has this room beside all that others will still write.
    private func hasUnpromisedRoom(for bytes: Int64, of attempt: Attempt) -> Bool {
        let promised = attempts.values.reduce(uncopiedBytes) { sum, other in
            guard other !== attempt, other.stores, other.stop == nil, let total = other.facts.total else {
                return sum
            }
            return sum + max(0, total - other.facts.bytes)
        }
        return files.hasRoom(for: bytes + promised)
    }

    /// The file system is full, and the task has given back its part, which had so many bytes. Nothing tells when there
    /// is room again: others than transfers use it as well.
    func waitForDisk(_ id: TaskID, having bytes: Int64) {
        guard let task = tasks[id] else { return }
        tasks[id]?.bytesOnFullDisk = max(task.bytesOnFullDisk, bytes)
        tasks[id]?.isShortOfDisk = true
        retry(id)
        // Once until there is room: it is looked for with each attempt.
        if !task.isShortOfDisk { noteWait(of: id) }
    }

    func waitsForRoom(_ id: TaskID) -> Bool {
        queue.waitsForRoom(id) || tasks[id]?.isShortOfDisk == true
    }
}
