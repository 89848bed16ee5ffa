import EventLoop
import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire

/// A survey of the sleepers' memory, a few in a turn: reading one from `/proc` takes some ten microseconds.
struct SizeSurvey {
    let clients: [ClientID]
    var next = 0
    var sizes: [ClientSize] = []
    /// Connections that wait for the result, and their requests. Nothing else is read from them meanwhile.
    var requests: [(connection: UInt64, request: UInt64)] = []

    static let clientsPerTurn = 16
}

extension Supervisor {
    /// Processes wait for memory, or a caller says that it is short: starts a survey of the sleepers' sizes for
    /// the core.
    func relieveMemory() {
        var isShort = false
        switch memory.watcher {
        case .some(let watcher):
            watcher.clear()
            isShort = watcher.isMachineShort
        case .none: break
        }
        do throws(SystemError) {
            if try memoryRequest.clear() { isShort = true }
        } catch {
            preconditionFailure("an eventfd of our own can be read: \(error)")
        }
        guard isShort else {
            return logger.debug("processes wait for memory, but the machine has enough: no client is ended")
        }
        beginSurvey()
    }

    /// The same on request.
    func relieveMemory(_ connection: Connection, _ request: UInt64) {
        guard isAdministrator(connection) else {
            let error = WireError(.permissionDenied, "this is for the supervisor's own user, and for root")
            return answer(connection, request, .error(error))
        }
        beginSurvey()
        memory.survey?.requests.append((connection.key, request))
        connection.isPaused = true
        connection.readable.disarm()
    }

    /// A survey that is under way also serves this request.
    private func beginSurvey() {
        if memory.survey == nil { memory.survey = SizeSurvey(clients: supervision.clientIDs) }
    }

    func continueSurvey() {
        guard var survey = memory.survey else { return }
        var looks = 0
        while looks < SizeSurvey.clientsPerTurn, survey.next < survey.clients.count {
            let client = survey.clients[survey.next]
            survey.next += 1
            guard ask({ $0.state(of: client) }) == .suspended, let record = connection(of: client)?.client
            else { continue }
            looks += 1
            guard let bytes = ProcFS.residentBytes(record.process.pid) else { continue }
            survey.sizes.append(ClientSize(client, bytes: bytes))
        }
        guard survey.next == survey.clients.count else {
            memory.survey = survey
            return
        }
        memory.survey = nil
        // Some may have woken meanwhile.
        let sizes = survey.sizes.filter { size in ask { $0.state(of: size.client) } == .suspended }
        let wasShort = ask { $0.isMemoryShort(at: now) }
        feed(.memoryPressure(sizes))
        if !wasShort, ask({ $0.isMemoryShort(at: now) }) {
            let pause = supervision.settings.memoryPressure.pause
            logger.notice("memory is short: for \(pause) only launches that are waited for take place")
        }
        for (key, request) in survey.requests {
            guard let connection = connections[key] else { continue }
            connection.isPaused = false
            answer(connection, request, .done(WireDone()))
            if !connection.isHungUp, connection.listing == nil { readAgain(connection) }
        }
    }
}
