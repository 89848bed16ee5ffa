internal import FoundationEssentials
internal import NIOCore
internal import NightbellNIO
internal import Synchronization

/// The members on one event loop. Only that loop touches them: members fall asleep and wake here, between two
/// deliveries.
final class Members {
    private enum Place {
        /// Its token in the supervisor.
        case asleep(ParkingToken)
        /// Waking, with the messages it has missed.
        case waking([Frame])
        case awake(Session)
        /// It ended before it was welcome.
        case gone
    }

    /// One member: 32 bytes, awake or asleep.
    private struct Row {
        var place: Place
        /// A ring of the members of its room.
        var next: UInt32
        var previous: UInt32
        var room = UInt32.max
        var name = UInt32.max
    }

    let hall: Hall
    let loop: any EventLoop
    let number: Int
    let tally: Tally
    private let pingInterval: TimeAmount?
    let encoder = JSONEncoder()
    let decoder = JSONDecoder()
    /// Set before the first connection.
    var hibernator: Hibernator?
    private var rows = Rows<Row>()
    /// One member of each room with members here.
    private var rooms: [UInt32: UInt32] = [:]
    /// Sessions that are awake, members or not.
    private var sessions: [Session] = []
    private var arePingsScheduled = false

    init(_ hall: Hall, _ tally: Tally, _ loop: any EventLoop, number: Int, pingInterval: TimeAmount?) {
        self.hall = hall
        self.tally = tally
        self.loop = loop
        self.number = number
        self.pingInterval = pingInterval
    }

    // MARK: Coming and going

    /// Adds a session as a member; it becomes one with its welcome.
    func join(
        _ session: Session, name: String, room: String
    ) throws(Hall.Refusal) -> (row: UInt32, Membership) {
        let row = rows.insert(Row(place: .awake(session), next: 0, previous: 0))
        rows[row].next = row
        rows[row].previous = row
        do {
            let (membership, afterwards) = try hall.join(name, room: room, row: row, loop: number)
            rows[row].name = membership.name
            see(to: afterwards)
            return (row, membership)
        } catch {
            free(row)
            throw error
        }
    }

    func leave(_ row: UInt32, _ membership: Membership) {
        if rows[row].room == .max {
            // The welcome is still on its way.
            rows[row].place = .gone
        } else {
            unlink(row)
            free(row)
        }
        see(to: hall.leave(membership, loop: number))
    }

    private func free(_ row: UInt32) {
        rows[row].place = .gone
        rows.remove(row)
    }

    private func see(to afterwards: Hall.Afterwards) {
        guard case .count(let room) = afterwards else { return }
        loop.scheduleTask(in: .seconds(1)) { [hall] in hall.tellCount(room: room) }
    }

    func membership(_ row: UInt32) -> Membership {
        Membership(room: rows[row].room, name: rows[row].name)
    }

    // MARK: Asleep and awake

    func isAwake(_ session: Session) {
        session.place = sessions.count
        sessions.append(session)
        if !arePingsScheduled { schedulePings(from: 0) }
    }

    func isNotAwake(_ session: Session) {
        let last = sessions.removeLast()
        if last !== session {
            sessions[session.place] = last
            last.place = session.place
        }
        if sessions.isEmpty { sessions = [] }
    }

    /// Handles a part of the sessions at a time, so that not all of them are pinged at once.
    private func schedulePings(from index: Int) {
        guard let pingInterval else { return }
        arePingsScheduled = true
        let parts = 16
        let bound = NIOLoopBound(self, eventLoop: loop)
        loop.scheduleTask(in: .nanoseconds(pingInterval.nanoseconds / Int64(parts))) {
            let members = bound.value
            members.arePingsScheduled = false
            guard !members.sessions.isEmpty else { return }
            let start = index < members.sessions.count ? index : 0
            let end = min(members.sessions.count, start + members.sessions.count / parts + 1)
            let now = NIODeadline.now()
            for session in Array(members.sessions[start..<end]) {
                session.pingIfSilent(for: pingInterval, at: now)
            }
            members.schedulePings(from: end)
        }
    }

    func fellAsleep(_ row: UInt32, _ token: ParkingToken) {
        rows[row].place = .asleep(token)
    }

    /// - Returns: the messages it has missed.
    func isBack(_ row: UInt32, _ session: Session) -> [Frame] {
        defer { rows[row].place = .awake(session) }
        if case .waking(let missed) = rows[row].place { return missed }
        return []
    }

    /// Removes a member that could not be woken: it has no session that would leave.
    func lose(_ woken: WokenConnection) {
        if let row = SavedSession(woken.state).row { leave(row, membership(row)) }
        tally.connections.subtract(1, ordering: .relaxed)
    }

    // MARK: Deliveries

    func deliver(_ deliveries: [Delivery]) {
        var touched: [Session] = []
        for delivery in deliveries {
            switch delivery {
            case .welcome(let row, let membership, let words):
                welcome(row, membership, words, &touched)
            case .tell(let room, let frame):
                tell(room, frame, &touched)
            }
        }
        for session in touched { session.flush() }
    }

    private func welcome(
        _ row: UInt32, _ membership: Membership, _ words: ServerWords, _ touched: inout [Session]
    ) {
        guard case .awake(let session) = rows[row].place else { return free(row) }
        rows[row].room = membership.room
        if let first = rooms[membership.room] {
            rows[row].next = first
            rows[row].previous = rows[first].previous
            rows[rows[row].previous].next = row
            rows[first].previous = row
        } else {
            rooms[membership.room] = row
        }
        session.isWelcome()
        // It may be long: it is encoded here, outside of the hall's lock.
        if session.write(words.frame(encoder)) { touched.append(session) }
    }

    private func unlink(_ row: UInt32) {
        let (next, previous, room) = (rows[row].next, rows[row].previous, rows[row].room)
        if next == row {
            rooms[room] = nil
        } else {
            rows[next].previous = previous
            rows[previous].next = next
            if rooms[room] == row { rooms[room] = next }
        }
    }

    private func tell(_ room: UInt32, _ frame: Frame, _ touched: inout [Session]) {
        guard let first = rooms[room] else { return }
        var row = first
        repeat {
            switch rows[row].place {
            case .awake(let session):
                if session.write(frame) { touched.append(session) }
            case .asleep(let token):
                if hibernator?.send(frame.bytes, to: token) != true { rows[row].place = .waking([frame]) }
            case .waking(var missed):
                rows[row].place = .gone
                missed.append(frame)
                rows[row].place = .waking(missed)
            case .gone:
                preconditionFailure("who is gone is in no room")
            }
            row = rows[row].next
        } while row != first
    }

    /// - Parameter look: gets a member's name, and whether its connection sleeps.
    func forEachMember(of room: UInt32, _ look: (_ name: UInt32, _ isAsleep: Bool) -> Void) {
        guard let first = rooms[room] else { return }
        var row = first
        repeat {
            if case .asleep = rows[row].place {
                look(rows[row].name, true)
            } else {
                look(rows[row].name, false)
            }
            row = rows[row].next
        } while row != first
    }
}
