import TransferModel

/// The sessions of clients: they begin with a connection, and last until neither a task nor a connection is left.
extension TransferEngine {
    /// A client connects to the session, which is made if there is none.
    func openSession(client: String, identifier: String) -> SessionID {
        let id = session(client: client, identifier: identifier)
        sessions.change(id) { $0.connections += 1 }
        return id
    }

    /// The session, which is made if there is none.
    func session(client: String, identifier: String) -> SessionID {
        if let id = sessions.id(client: client, identifier: identifier) { return id }
        let now = elapsedSeconds
        let id = store.addSession(client: client, identifier: identifier, seen: now)
        files.make(id)
        sessions.insert(id, ClientSession(client: client, identifier: identifier, seen: now))
        return id
    }

    /// A connection to the session has ended.
    ///
    /// - Parameter owesResults: results were reported on it, and not released: the client may have died while
    ///   it handled them.
    func leaveSession(_ id: SessionID, owesResults: Bool) {
        sessions.change(id) { $0.connections -= 1 }
        guard let session = sessions[id], !removeIfUnused(id) else { return }
        setSeen(id)
        if owesResults, session.connections == 0, session.isWhollySettled {
            noteEnd(of: id)
        } else {
            scheduleReminder(of: id)
        }
    }

    /// Something has happened from which on an orphaned session is kept for its time.
    func setSeen(_ id: SessionID) {
        let now = elapsedSeconds
        sessions.change(id) { $0.seen = now }
        store.setSeen(id, now)
    }

    /// - Returns: whether it had neither a task nor a connection, and no file is copied for it.
    @discardableResult
    func removeIfUnused(_ id: SessionID) -> Bool {
        guard let session = sessions[id], session.isUnused, !hasCopies(id) else { return false }
        removeSession(id)
        return true
    }

    func removeSession(_ id: SessionID) {
        guard let session = sessions[id] else { return }
        for task in session.tasks { removeTask(task) }
        cancelCopies { $0.record.session == id }
        sessions.remove(id)
        reminders.reset(id)
        store.remove(id)
        afterCommit { [files] in files.remove(id) }
    }

    /// Its user has quit a client: its tasks are cancelled, and nothing of them is kept.
    ///
    /// - Returns: its sessions.
    func removeSessions(of client: String) -> [SessionID] {
        let ids = sessions.ids(of: client)
        for id in ids { removeSession(id) }
        return ids
    }

    func isWhollySettled(_ session: SessionID) -> Bool { sessions[session]?.isWhollySettled ?? true }

    /// The tasks of the session, in their order.
    func taskIDs(of session: SessionID) -> [TaskID] { sessions[session]?.tasks.sorted() ?? [] }
}
