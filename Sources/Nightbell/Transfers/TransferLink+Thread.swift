import LinuxSystem
import SwiftProtobuf
import TransferWire

/// The thread of a session: it connects, reads when no other thread does, and runs the handlers.
extension TransferLink {
    private enum Step {
        case handle(TransferEvent)
        case connect
        case read(TransferConnection)
        /// The connection is not needed any more.
        case rest
        case end
    }

    /// How long the client is held awake without anything to do: results follow each other.
    private static let idleHold: Int64 = 2_000_000_000
    private static let longestPause: Int64 = 5_000_000_000

    func run() {
        var failures = 0
        while true {
            let step = core.turn { core -> Monitor<TransferLinkState>.Turn<Step> in
                if core.isClosed { return .done(.end) }
                if !core.events.isEmpty { return .done(.handle(core.events.removeFirst())) }
                guard let connection = core.connection else {
                    return core.isNeeded && !core.isConnecting ? .done(.connect) : .wait(.max)
                }
                if !core.isNeeded, core.waiting == 0, core.releases.isEmpty, !core.isReading {
                    core.connection = nil
                    return .done(.rest)
                }
                if core.isReading { return .wait(.max) }
                core.isReading = true
                return .done(.read(connection))
            }
            switch step {
            case .end: return
            case .rest: hold.endResults()
            case .connect:
                // A connection that brought nothing counts as none: this process may lack descriptors for the
                // results.
                let hasHeard = core.withLock { core in
                    defer { core.hasHeard = false }
                    return core.hasHeard
                }
                if hasHeard { failures = 0 }
                if failures > 0 {
                    pause(min(Self.firstPause << Int64(min(failures - 1, 10)), Self.longestPause))
                }
                failures += 1
                _ = try? connect()
            case .read(let connection):
                let end = core.withLock { $0.busyAt } + Self.idleHold
                if !hold.isForResults {
                    connection.wait(milliseconds: -1)
                } else if !connection.wait(
                    milliseconds: CInt(clamping: max(0, end - BootClock.now()) / 1_000_000 + 1))
                {
                    hold.endResults()
                }
                read(connection)
            case .handle(let event): handle(event)
            }
        }
    }

    private func handle(_ event: TransferEvent) {
        switch event {
        case .finished(let finished, let file):
            // Its release may have been lost with the last connection.
            if !core.withLock({ $0.handled.contains(finished.task) }) {
                handlers.finished(TransferResult(finished, file: file?.rawValue))
            }
            forget(finished.task)
            withExtendedLifetime(file) {}
        case .needsCredentials(let challenge):
            handlers.needsCredentials(TransferTask(number: challenge.task, name: challenge.tag))
        case .progress(let progress): handlers.progress(TransferProgress(progress))
        case .sessionFinished:
            handlers.sessionFinished()
            // A client that slept before the releases are certain would be woken once more for these results.
            if core.withLock({ $0.releases.isEmpty && !$0.isNeeded }) { hold.endResults() }
        }
    }

    /// Has the process forget a result. If the connection ends before the answer, the result is reported
    /// again.
    private func forget(_ task: Int64) {
        var request = WireTransferRequest()
        request.release.task = task
        request.number = core.withLock { core in
            core.lastNumber += 1
            core.handled.insert(task)
            core.releases[core.lastNumber] = task
            return core.lastNumber
        }
        while let connection = core.withLock({ $0.isClosed ? nil : $0.connection }) {
            do throws(SystemError) {
                if try connection.send(request, []) { return }
                readOrWait(connection, 10_000_000)
            } catch {
                lose(connection)
            }
        }
        core.withLock { core in
            core.releases[request.number] = nil
            // On the next connection the result comes again, and then its release.
            core.isNeeded = true
        }
    }

    /// A wake tells that there are results: the client is not suspended before they are handled.
    func wake() {
        expectResults()
        let connection = core.withLock { core in
            if core.connection == nil { core.isNeeded = true }
            core.lastNumber += 1
            return core.connection.map { ($0, core.lastNumber) }
        }
        core.changed()
        guard let (connection, number) = connection else { return }
        // The thread waits for the process: the answer has it look whether there is still something to do.
        let request = WireTransferRequest.with {
            $0.number = number
            $0.list.after = .max
        }
        if (try? connection.send(request, [])) == nil { lose(connection) }
    }
}
