import NightbellCore
import NightbellSupervisor
import Testing

struct LockInspectionTests {
    private let start = Instant(nanoseconds: 1_000_000_000_000)
    private let clients = (1...3).map { ClientID(rawValue: $0) }

    @Test("Only the first check of a client begins a turn; the next ones wait for a turn that happens anyway")
    func turns() {
        var inspections = LockInspections()
        #expect(inspections.next == nil)
        inspections.insert(clients[0], last: start)
        #expect(inspections.next == nil)
        inspections.insert(clients[1], last: nil)
        #expect(inspections.next.map { $0 <= start } == true)
        #expect(inspections.takeNext(at: start) == clients[1])
        inspections.pause(at: start)
        #expect(inspections.next == nil)

        let due = start + LockInspections.pauseOfClient
        #expect(inspections.takeNext(at: start + LockInspections.pause) == nil)
        #expect(inspections.takeNext(at: due) == clients[0])
        #expect(inspections.takeNext(at: due) == nil)
    }

    @Test("A slow check is followed by a longer pause")
    func slow() {
        var inspections = LockInspections()
        inspections.insert(clients[0], last: nil)
        inspections.pause(at: start, after: .milliseconds(20))
        #expect(inspections.next == start + .seconds(2))
        #expect(inspections.takeNext(at: start + .milliseconds(1_999)) == nil)
        #expect(inspections.takeNext(at: start + .seconds(2)) == clients[0])
        inspections.insert(clients[1], last: nil)
        inspections.pause(at: start, after: LockInspections.slowCheck)
        #expect(inspections.takeNext(at: start + LockInspections.pause) == clients[1])
    }

    @Test("No check begins shortly after another one, and those that are due first come first")
    func order() {
        var inspections = LockInspections()
        let later = start + .seconds(1)
        inspections.insert(clients[0], last: later)
        inspections.insert(clients[1], last: start)
        let due = later + LockInspections.pauseOfClient
        #expect(inspections.takeNext(at: due) == clients[1])
        inspections.pause(at: due)
        inspections.insert(clients[2], last: nil)
        #expect(inspections.next == due + LockInspections.pause)
        #expect(inspections.takeNext(at: due) == nil)
        #expect(inspections.takeNext(at: due + LockInspections.pause) == clients[2])
        #expect(inspections.takeNext(at: due + LockInspections.pause) == clients[0])
    }
}
