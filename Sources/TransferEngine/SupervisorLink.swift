package import EventHandlers
import EventLoop
import Glibc
package import LinuxSystem
import SwiftProtobuf
import TransferModel
import TransferWire

/// The connection to the supervisor that has started the process: it says which clients were quit, and is
/// told of the ends of sessions.
package final class SupervisorLink {
    private let loop: HandlerLoop
    private let engine: TransferEngine
    private let socket: SeqPacketSocket
    private var buffer = PacketBuffer(capacity: TransferPacket.maximumBytes)
    private var input: DescriptorWatch?
    private var output: DescriptorWatch?
    /// Ends that were not told yet.
    private var ends = EndQueue()
    private var rate = NoticeRate()
    private var rateTimer: LoopTimer?
    /// Those that were told so far, if more of them follow.
    private var subscriptions: [String: Subscription] = [:]
    /// The needs that were told last; nil: none were.
    private var plan: TransferPlan?
    private var isBlocked = false
    /// All clients that were quit before are known: others may be served.
    private(set) var isReady = false
    /// Called when `isReady` has become true.
    var onReady: () -> Void = {}
    /// Called when sessions are gone.
    var onRemoval: ([SessionID]) -> Void = { _ in }

    private static let mostTurnDemands = 64

    package init(
        _ loop: HandlerLoop, _ engine: TransferEngine, _ socket: consuming SeqPacketSocket
    ) throws(TransferError) {
        self.loop = loop
        self.engine = engine
        self.socket = socket
        let rawValue = self.socket.rawValue
        do throws(LoopError) {
            input = try DescriptorWatch(loop, rawValue, .read) { [unowned self] _ in receive() }
            output = try DescriptorWatch(loop, rawValue, .write, isArmed: false) { [unowned self] _ in
                isBlocked = false
            }
        } catch {
            throw .loop(error)
        }
        // The loop's turn that follows sends more.
        rateTimer = LoopTimer(loop) {}
        engine.isGoodMoment = false
        engine.onEnd = { [unowned self] end in ends.append(end) }
    }

    /// The supervisor can send nothing more; what it has sent can still be read.
    func stopListening() { _ = shutdown(socket.rawValue, CInt(SHUT_RD)) }

    /// Whether there is a demand that was not read yet.
    var hasUnread: Bool { SocketTraffic.hasUnread(socket.rawValue) }

    /// Everything was told.
    var isIdle: Bool { ends.isEmpty && plan == presentPlan }

    private var presentPlan: TransferPlan {
        TransferPlan(hasDiscretionary: engine.queue.hasDiscretionary, nextIssue: engine.nextIssue)
    }

    private func receive() {
        do throws(SystemError) {
            for _ in 0..<Self.mostTurnDemands {
                switch try socket.receive(into: &buffer) {
                case .wouldBlock: return
                case .end: return loop.stop()
                case .packet(_, let truncated, _):
                    guard !truncated, let demand = try? WireTransferDemand(serializedBytes: buffer.bytes)
                    else { return loop.stop() }
                    obey(demand)
                }
            }
        } catch {
            loop.stop()
        }
    }

    private func obey(_ demand: WireTransferDemand) {
        onRemoval(demand.quitClients.flatMap { engine.removeSessions(of: $0) })
        switch demand.moment {
        case .good: engine.isGoodMoment = true
        case .bad: engine.isGoodMoment = false
        case .unchanged, .UNRECOGNIZED: break
        }
        if demand.hasSubscriptions {
            subscriptions.merge(.init(demand.subscriptions)) { $1 }
            if !demand.subscriptions.hasMore_p {
                engine.subscribe(to: subscriptions)
                subscriptions = [:]
            }
        }
        guard !demand.hasMore_p, !isReady else { return }
        isReady = true
        ends = EndQueue(engine.ends)
        onReady()
    }

    /// Tells what there is to tell, as far as the supervisor reads. Call it when the changes are stored.
    func flush() {
        guard isReady else { return }
        while let end = ends.first, mayTell, tell(end) { ends.removeFirst() }
        let present = presentPlan
        if plan != present, mayTell, tell(present) { plan = present }
        do throws(LoopError) {
            try output?.setArmed(isBlocked)
        } catch {
            loop.stop()
        }
    }

    /// False: later.
    private var mayTell: Bool {
        guard !isBlocked else { return false }
        guard let instant = rate.pause(at: BootClock.now()) else { return true }
        rateTimer?.deadline = instant
        return false
    }

    /// False: the supervisor has to read first, or has ended.
    private func tell(_ end: TransferEnd) -> Bool {
        send(
            .with {
                $0.end = .with {
                    $0.client = end.client
                    $0.session = end.session
                    $0.number = end.number
                    $0.isDiscretionary = end.isDiscretionary
                }
            })
    }

    private func tell(_ plan: TransferPlan) -> Bool {
        send(
            .with {
                $0.plan = .with {
                    $0.hasDiscretionary_p = plan.hasDiscretionary
                    $0.nextIssueS = plan.nextIssue.map { UInt64(clamping: max(1, $0)) } ?? 0
                }
            })
    }

    private func send(_ notice: WireTransferNotice) -> Bool {
        do {
            isBlocked = try !socket.send(try notice.serializedBytes() as [UInt8])
            if !isBlocked { rate.noteSent() }
            return !isBlocked
        } catch {
            loop.stop()
            return false
        }
    }
}

extension [String: Subscription] {
    fileprivate init(_ wire: WireTransferSubscriptions) {
        self.init()
        for subscription in wire.subscriptions {
            guard let url = TransferURL(subscription.url) else { continue }
            self[subscription.client] = Subscription(
                url, interval: Int64(clamping: Swift.max(1, subscription.intervalS)))
        }
    }
}
