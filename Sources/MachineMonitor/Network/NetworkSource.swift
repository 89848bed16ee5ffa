import CMachine
import EventHandlers
import EventLoop
import Glibc
import LinuxSystem
import NightbellWire

/// The machine's addresses and default routes by rtnetlink, and whether traffic costs money by
/// NetworkManager.
///
/// Changes are reported once they have settled: after 1 s without another one, or after 5 s of them.
final class NetworkSource: Source {
    private let context: SourceContext
    private var descriptor: OwnedDescriptor?
    private var watch: DescriptorWatch?
    private var table = NetworkTable()
    private var buffer = [UInt8](repeating: 0, count: 32_768)
    private var generation: UInt64 = 0
    /// Requests to the kernel, which answers one at a time; the first is under way.
    private var requests: [cmachine_network_subject] = []
    /// The first change that was not reported yet.
    private var firstChange: Int64?
    /// Whether routes may have gone without a notification.
    private var mayLackRemovals = false
    /// Whether the table may be wrong, because something changed while the kernel listed it.
    private var isInconsistent = false
    private var settling: LoopTimer?
    private var metering: MeteredConnection?

    private static let quiet: Int64 = 1_000_000_000
    private static let longest: Int64 = 5_000_000_000
    /// So many packets are read in a turn.
    private static let packetsPerTurn = 16

    init(_ context: SourceContext) {
        self.context = context
        settling = LoopTimer(context.loop) { [unowned self] in settled() }
        metering = MeteredConnection(context) { [unowned self] in
            if requests.isEmpty, firstChange == nil { report() }
        }
        do {
            let opened = OwnedDescriptor(
                adopting: try systemCall("rtnetlink") { cmachine_network_open() })
            watch = try DescriptorWatch(context.loop, opened.rawValue, .read) { [unowned self] _ in receive()
            }
            descriptor = consume opened
            context.reports.setAvailability(.network, reason: nil)
            listAll()
        } catch {
            fail("\(error)")
        }
    }

    func update(_ demand: WireMonitorDemand) {}

    private func fail(_ reason: String) {
        watch = nil
        descriptor = nil
        context.reports.setAvailability(.network, reason: reason)
    }

    // MARK: Listing

    private func listAll() {
        table = NetworkTable()
        requests = []
        isInconsistent = false
        mayLackRemovals = false
        request([CMACHINE_NETWORK_LINK, CMACHINE_NETWORK_ADDRESS, CMACHINE_NETWORK_ROUTE])
    }

    private func request(_ subjects: [cmachine_network_subject]) {
        let isIdle = requests.isEmpty
        requests += subjects
        if isIdle { sendRequest() }
    }

    private func sendRequest() {
        guard let subject = requests.first, let rawValue = descriptor?.rawValue else { return }
        if subject == CMACHINE_NETWORK_ROUTE { table.removeDefaultRoutes() }
        do throws(SystemError) {
            _ = try systemCall("rtnetlink") { cmachine_network_request(rawValue, CInt(subject.rawValue)) }
        } catch {
            fail("\(error)")
        }
    }

    private func finishRequest() {
        guard !requests.isEmpty else { return }
        requests.removeFirst()
        if requests.isEmpty {
            if firstChange == nil { report() }
        } else {
            sendRequest()
        }
    }

    // MARK: Receiving

    private func receive() {
        for _ in 0..<Self.packetsPerTurn {
            guard let rawValue = descriptor?.rawValue else { return }
            do throws(SystemError) {
                let length = try nonblockingSystemCall("rtnetlink") {
                    unsafe cmachine_network_receive(rawValue, &buffer, buffer.count)
                }
                guard let length else { return }
                apply(length)
            } catch {
                guard error.code == ENOBUFS else { return fail("\(error)") }
                // Notifications were dropped.
                noteChange()
                listAll()
            }
        }
    }

    private func apply(_ length: Int) {
        var offset = 0
        var message = cmachine_network_message()
        while unsafe cmachine_network_next(buffer, length, &offset, &message) == 1 {
            if message.is_interrupted != 0 {
                isInconsistent = true
                awaitQuiet()
            }
            switch cmachine_network_subject(UInt32(message.subject)) {
            case CMACHINE_NETWORK_DONE: finishRequest()
            case CMACHINE_NETWORK_FAILURE: fail("rtnetlink: \(SystemError.message(for: message.code))")
            default:
                let effect = table.apply(message)
                guard message.is_answer == 0 else { continue }
                if effect.mayRemoveRoutes { mayLackRemovals = true }
                if effect.isChange { noteChange() }
            }
        }
    }

    private func noteChange() {
        generation += 1
        awaitQuiet()
    }

    private func awaitQuiet() {
        let now = BootClock.now()
        let first = firstChange ?? now
        firstChange = first
        settling?.deadline = min(now + Self.quiet, first + Self.longest)
    }

    // MARK: Reporting

    private func settled() {
        firstChange = nil
        // A list under way ends with a report.
        guard requests.isEmpty else { return }
        if isInconsistent || table.isOverflowing { return listAll() }
        guard mayLackRemovals else { return report() }
        mayLackRemovals = false
        request([CMACHINE_NETWORK_ROUTE])
    }

    private func report() {
        guard descriptor != nil else { return }
        guard !table.isOverflowing else {
            return context.reports.setAvailability(
                .network, reason: "there are more than \(NetworkTable.mostAddresses) addresses")
        }
        context.reports.setAvailability(.network, reason: nil)
        var network = WireMonitorReport.Network()
        let addresses = table.usableAddresses
        network.addresses = addresses.map(\.asField)
        network.defaultRoutes = table.defaultRouteText
        network.isUp = !addresses.isEmpty && !network.defaultRoutes.isEmpty
        network.metered = metering?.answer ?? .unspecified
        network.generation = generation
        context.reports.report(.network, .network(network))
    }
}
