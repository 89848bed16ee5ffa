import EventHandlers
import EventLoop
import Glibc
package import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// Observes the machine for a supervisor: opens the sources that it demands, and reports what they say.
///
/// Everything happens on the thread that calls ``run()``. The end of the connection ends it.
package final class MachineMonitor {
    private let loop: HandlerLoop
    private let socket: SeqPacketSocket
    private var buffer = PacketBuffer(capacity: MonitorPacket.maximumBytes)
    private var input: DescriptorWatch?
    private var output: DescriptorWatch?
    private let context: SourceContext
    private var sources: [WireMonitorSource: any Source] = [:]
    private var latest = WireMonitorDemand()
    /// The reason of the end, if it is not the end of the connection.
    private var failure: MonitorError?

    package init(
        _ socket: consuming SeqPacketSocket, _ configuration: MonitorConfiguration
    ) throws(MonitorError) {
        let loop: HandlerLoop
        do throws(HandlerError) {
            loop = try HandlerLoop()
        } catch {
            throw MonitorError(error)
        }
        self.loop = loop
        self.socket = socket
        let sender = Sender()
        let reports = Reports(loop) { sender.send($0) }
        context = SourceContext(
            loop: loop, reports: reports, configuration: configuration,
            buses: BusPool(loop, configuration))
        sender.monitor = self
        let rawValue = self.socket.rawValue
        do throws(LoopError) {
            input = try DescriptorWatch(loop, rawValue, .read) { [unowned self] _ in receive() }
            output = try DescriptorWatch(loop, rawValue, .write, isArmed: false) { [unowned self] _ in
                // The turn ends with a flush.
                setWaitsForRoom(false)
            }
        } catch {
            throw MonitorError.loop(error)
        }
        loop.onTurnEnd = { [unowned self] in
            context.buses.endTurn()
            context.reports.flush()
        }
    }

    /// Observes until the supervisor ends the connection.
    package func run() throws(MonitorError) {
        do throws(HandlerError) {
            try loop.run()
        } catch {
            throw MonitorError(error)
        }
        if let failure { throw failure }
    }

    private func end(_ failure: MonitorError? = nil) {
        if self.failure == nil { self.failure = failure }
        loop.stop()
    }

    // MARK: Demands

    /// Only the last of several demands counts.
    private func receive() {
        var latest: WireMonitorDemand?
        do throws(SystemError) {
            while true {
                switch try socket.receive(into: &buffer) {
                case .wouldBlock:
                    if let latest { update(latest) }
                    return
                case .end: return end()
                case .packet(_, let truncated, _):
                    guard !truncated, let demand = try? WireMonitorDemand(serializedBytes: buffer.bytes)
                    else {
                        return end(.nonsense)
                    }
                    latest = demand
                }
            }
        } catch {
            end(.connection(error))
        }
    }

    private func update(_ demand: WireMonitorDemand) {
        if demand == latest { return answer() }
        let isAnew = demand.number != latest.number
        latest = demand
        let demanded = Set(demand.sources)
        for kind in Array(sources.keys) where !demanded.contains(kind) {
            sources[kind] = nil
            context.reports.close(kind)
        }
        // In the order in which they are named: it is the supervisor's order of importance.
        for kind in demand.sources {
            if let source = sources[kind] {
                if isAnew, kind.isOfObservations { context.reports.renew(kind) }
                source.update(demand)
            } else if let source = make(kind) {
                sources[kind] = source
                source.update(demand)
            }
        }
    }

    /// The supervisor wants to know whether this process still runs.
    private func answer() {
        for kind in latest.sources.prefix(1) { context.reports.repeatState(kind) }
    }

    private func make(_ kind: WireMonitorSource) -> (any Source)? {
        switch kind {
        case .network: NetworkSource(context)
        case .power: PowerSource(context)
        case .sleep: SleepSource(context)
        case .users: UsersSource(context)
        case .audio: AudioSource(context)
        case .location: LocationSource(context)
        case .bluetooth: BluetoothSource(context)
        case .devices: DeviceSource(context)
        case .notifications: NotificationSource(context)
        case .unspecified, .UNRECOGNIZED: nil
        }
    }

    // MARK: Reports

    /// The way from the reports to the socket; the monitor owns both.
    private final class Sender {
        weak var monitor: MachineMonitor?

        func send(_ report: WireMonitorReport) -> Bool {
            guard let monitor else { return false }
            return monitor.send(report)
        }
    }

    /// False: the supervisor has to read first.
    private func send(_ report: WireMonitorReport) -> Bool {
        do {
            let bytes: [UInt8] = try report.serializedBytes()
            guard bytes.count <= MonitorPacket.maximumBytes else {
                end(.tooLong(bytes: bytes.count))
                return true
            }
            guard try socket.send(bytes) else {
                setWaitsForRoom(true)
                return false
            }
            return true
        } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
            end()
        } catch let error as SystemError {
            end(.connection(error))
        } catch {
            end(.nonsense)
        }
        return true
    }

    private func setWaitsForRoom(_ waits: Bool) {
        do throws(LoopError) {
            try output?.setArmed(waits)
        } catch {
            end(.loop(error))
        }
    }
}

extension WireMonitorSource {
    /// Whether its level is about the subjects of observations, of which the supervisor forgets those that it
    /// does not demand.
    fileprivate var isOfObservations: Bool {
        switch self {
        case .location, .bluetooth, .devices: true
        case .network, .power, .sleep, .users, .audio, .notifications, .unspecified, .UNRECOGNIZED: false
        }
    }
}
