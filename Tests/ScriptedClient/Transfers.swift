import Glibc
import Nightbell

extension ScriptedClient {
    func transfer(_ command: String, _ arguments: Arguments) throws -> String {
        let name = try arguments.text(0)
        guard command != "transfers" else {
            let session = try TransferSession(client(), identifier: name, handlers: transferHandlers(name))
            state.withLock { $0.transfers[name] = session }
            return ""
        }
        guard let session = state.withLock({ $0.transfers[name] }) else {
            throw Refusal("usage", "no session is named \(name)")
        }
        switch command {
        case "download":
            var options = TransferOptions()
            options.wantsSHA256 = true
            return
                "\(try session.download(arguments.text(2), name: arguments.text(1), options: options).number)"
        case "upload":
            let file = try descriptor(try arguments.text(2))
            return "\(try session.upload(file, to: arguments.text(3), name: arguments.text(1)).number)"
        case "authorize":
            let task = try arguments.text(1)
            for status in try session.tasks() where status.task.name == task {
                let value = arguments.words.dropFirst(2).joined(separator: " ")
                try session.authorize(status.task, [TransferField("Authorization", value)])
            }
        case "cancel-transfers": try session.cancelAll()
        case "transfer-tasks":
            return try session.tasks().map { "\($0.task.name):\($0.state)" }.joined(separator: ",")
        case "end-transfers":
            session.invalidate()
            state.withLock { $0.transfers[name] = nil }
        default: throw Refusal("usage", "no such command: \(command)")
        }
        return ""
    }

    private func transferHandlers(_ session: String) -> TransferSession.Handlers {
        var handlers = TransferSession.Handlers()
        handlers.finished = { result in
            if let directory = self.state.withLock({ $0.keptIn }) {
                try? result.keep(as: directory + "/" + result.task.name)
            }
            let failure = result.failure.map { "\($0)" } ?? "-"
            let digest = result.sha256.map { Self.hex($0[...]) } ?? "-"
            self.say(
                "transferred \(session) \(result.task.name) status=\(result.status) bytes=\(result.bytes) "
                    + "sha=\(digest) failure=\(failure)")
            self.hang(.transfer)
        }
        handlers.needsCredentials = { self.say("needs-credentials \(session) \($0.name)") }
        handlers.sessionFinished = { self.say("session-finished \(session)") }
        return handlers
    }
}
