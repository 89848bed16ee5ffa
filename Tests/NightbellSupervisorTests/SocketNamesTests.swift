import Testing

@testable import NightbellSupervisor

@Suite struct SocketNamesTests {
    @Test func namesAreShared() {
        var names = SocketNames()
        let first = names.add("sip", slot: 0)
        let second = names.add("sip", slot: 1)
        let other = names.add("rtp", slot: 2)
        let none = names.add("", slot: 3)
        #expect(first == second && first != other)
        names.remove(first, slot: 0)
        #expect(names.text(of: second, slot: 1) == "sip")
        #expect(names.text(of: other, slot: 2) == "rtp")
        #expect(names.text(of: none, slot: 3).isEmpty)
        // An unused name makes room.
        names.remove(second, slot: 1)
        let third = names.add("registration", slot: 1)
        #expect(third == first && names.text(of: third, slot: 1) == "registration")
        #expect(names.add("sip", slot: 0) != third)
        names.remove(none, slot: 3)
    }

    /// A client gives each socket another name.
    @Test func tooManyNamesAreKeptOneByOne() {
        var names = SocketNames(limit: 2)
        let all = (0..<5).map { names.add("name \($0)", slot: UInt32($0)) }
        for (slot, name) in all.enumerated() {
            #expect(names.text(of: name, slot: UInt32(slot)) == "name \(slot)")
        }
        for (slot, name) in all.enumerated() { names.remove(name, slot: UInt32(slot)) }
        let again = names.add("another", slot: 9)
        #expect(names.text(of: again, slot: 9) == "another")
    }
}
