import EventHandlers
import LinuxSystem
import TransferModel

/// The ends of sessions, of which their clients have to know: all tasks are finished, or wait for credentials, or the
/// rest waits for room that the client can make.
extension TransferEngine {
    /// A task has finished, or needs credentials.
    func noteEnd(of task: TaskID) {
        guard let id = tasks[task]?.session else { return }
        if tasks[task]?.record.state == .needsCredentials { noteEnd(of: id) } else { ended.insert(id) }
    }

    /// A task waits for room: its client may have to be told of the results that it can release. One that was
    /// told, and has not come, is told again in its time.
    func noteWait(of task: TaskID) {
        guard let id = tasks[task]?.session, !reminders.isScheduled(id) else { return }
        ended.insert(id)
    }

    /// At the end of the turn: tasks that follow each other at once make one end.
    func noteEnds() {
        for id in ended.sorted() {
            guard let session = sessions[id], session.isWhollySettled || waitsForReleases(session) else {
                continue
            }
            noteEnd(of: id)
        }
        ended.removeAll()
    }

    func noteEnd(of id: SessionID) {
        reminders.reset(id)
        // Its client has the time of an orphan to come for it, however long the transfers took.
        setSeen(id)
        tellEnd(of: id)
    }

    private func tellEnd(of id: SessionID) {
        sessions.change(id) { $0.ends += 1 }
        guard let session = sessions[id] else { return }
        store.setEnds(id, session.ends)
        let end = end(of: id, session)
        afterCommit { [unowned self] in onEnd(end) }
        scheduleReminder(of: id)
    }

    func scheduleReminder(of id: SessionID) {
        guard let session = sessions[id], session.connections == 0, owesEnd(session) else { return }
        let due = reminders.schedule(id, at: BootClock.now())
        reminderTimer?.deadline = min(reminderTimer?.deadline ?? .max, due)
    }

    func remind() {
        for id in reminders.takeDue(at: BootClock.now()) {
            guard let session = sessions[id], session.connections == 0, owesEnd(session) else { continue }
            reminders.noteRepeated(id)
            tellEnd(of: id)
        }
        reminderTimer?.deadline = reminders.next
    }

    /// Whether its client has results to take, or credentials to give.
    private func owesEnd(_ session: ClientSession) -> Bool {
        !session.tasks.isEmpty
            && (session.isWhollySettled || session.needsCredentials || waitsForReleases(session))
    }

    /// Whether all tasks of the session that are not settled wait for room, which its client can make: it is told
    /// of the results, and releases them.
    private func waitsForReleases(_ session: ClientSession) -> Bool {
        session.hasSettled && session.unsettled.allSatisfy { waitsForRoom($0) }
    }

    /// The last ends of all sessions with results that are not released, or with tasks that need credentials.
    var ends: [TransferEnd] {
        sessions.ids.compactMap { id in
            guard let session = sessions[id], session.ends > 0, owesEnd(session) else { return nil }
            return end(of: id, session)
        }
    }

    private func end(of id: SessionID, _ session: ClientSession) -> TransferEnd {
        TransferEnd(
            client: session.client, session: session.identifier, number: Self.number(of: id, session.ends),
            isDiscretionary: session.tasks.allSatisfy { tasks[$0]?.record.task.isDiscretionary ?? false })
    }

    /// It grows from one end to the next one, also if the session was removed in between, and was made again:
    /// each has a larger ID than those before.
    private static func number(of id: SessionID, _ ends: UInt64) -> UInt64 {
        UInt64(clamping: id.rawValue) << 32 | ends & 0xFFFF_FFFF
    }
}
