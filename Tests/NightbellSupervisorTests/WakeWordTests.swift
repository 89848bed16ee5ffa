import Glibc
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import Testing

@Suite struct WakeWordTests {
    /// A client with a word sees the whole page.
    @Test func usersShareNoPage() throws {
        var words = WakeWords()
        let first = try words.allocate(user: 1)
        let second = try words.allocate(user: 2)
        let third = try words.allocate(user: 1)
        #expect(first.page == third.page)
        #expect(first.index != third.index)
        #expect(first.page != second.page)
        let descriptor = words.descriptor(for: first)
        #expect(descriptor == words.descriptor(for: third))
        #expect(descriptor != words.descriptor(for: second))
    }

    /// A reused word must not look like a wake of its new owner.
    @Test func aWordThatIsUsedAgainIsZero() throws {
        var words = WakeWords()
        let place = try words.allocate(user: 1)
        unsafe words.word(at: place).store(0x101)
        words.giveBack(place, user: 1)
        let again = try words.allocate(user: 1)
        #expect(again.page == place.page && again.index == place.index)
        let page = OwnedDescriptor(adopting: dup(words.descriptor(for: again)))
        let word = try SharedWord(mapping: page, at: Int(again.index))
        #expect(word.value == 0)
        unsafe words.word(at: again).store(0x201)
        #expect(word.value == 0x201)
    }

    @Test func aFullPageIsFollowedByAnother() throws {
        var words = WakeWords()
        var places: [WakeWords.Place] = []
        for _ in 0...SharedPage.wordCount { places.append(try words.allocate(user: 1)) }
        #expect(Set(places.map { Int($0.page) * SharedPage.wordCount + Int($0.index) }).count == places.count)
        #expect(Set(places.map(\.page)).count == 2)
    }

    /// A uid that has gone uses no page.
    @Test func anUnusedPageIsGivenBack() throws {
        var words = WakeWords()
        let lasting = try words.allocate(user: 0)
        for user in UInt32(1)...100 {
            let places = [try words.allocate(user: user), try words.allocate(user: user)]
            #expect(words.pageCount == 2)
            for place in places { words.giveBack(place, user: user) }
            #expect(words.pageCount == 1)
        }
        unsafe words.word(at: lasting).store(5)
        words.giveBack(lasting, user: 0)
        #expect(words.pageCount == 0)
    }

    // MARK: In a supervisor

    @Test func aSocketThatWakesIsAnnouncedInTheWord() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor)
        let word = try client.helloForWakeWord("org.example.phone")
        let pair = try Pair.tcp()
        _ = try client.handOver(pair.near)
        try client.enterBackground()
        for epoch in UInt64(1)...3 {
            try client.ready(try client.prepare())
            try client.wait(for: "org.example.phone", toBe: .suspended, supervisor)
            #expect(word.value >> 8 == epoch - 1)
            try pair.send("INVITE")
            let wake = try client.wake()
            #expect(word.value == epoch << 8 | 1)
            #expect(pair.received() == "INVITE")
            try client.finish(wake)
        }
        try supervisor.stop()
    }

    @Test func aPeerThatClosesIsAnnouncedToo() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor)
        let word = try client.helloForWakeWord("org.example.phone")
        let pair = try Pair.tcp()
        _ = try client.handOver(pair.near)
        try client.goToSleep()
        try client.wait(for: "org.example.phone", toBe: .suspended, supervisor)
        pair.closeFar()
        _ = try client.wake()
        #expect(word.value == 1 << 8 | 3)
        try supervisor.stop()
    }

    /// Its sockets are not its own before the message arrives: the supervisor may end it instead.
    @Test func aClientThatMayBeTerminatedGetsNoEarlyWord() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor)
        let word = try client.helloForWakeWord("org.example.phone", policy: .terminate)
        let pair = try Pair.tcp()
        _ = try client.handOver(pair.near)
        try client.goToSleep()
        try client.wait(for: "org.example.phone", toBe: .suspended, supervisor)
        try pair.send("INVITE")
        _ = try client.wake()
        #expect(word.value == 0)
        try supervisor.stop()
    }

    @Test func wakesWithoutASocketAreNotAnnouncedEarly() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor)
        let word = try client.helloForWakeWord("org.example.phone")
        let pair = try Pair.tcp()
        _ = try client.handOver(pair.near)
        try client.goToSleep()
        try client.wait(for: "org.example.phone", toBe: .suspended, supervisor)
        var request = WireWakeClient()
        request.identifier = "org.example.phone"
        try WireClient(supervisor).ask(.wakeClient(request))
        _ = try client.wake()
        #expect(word.value == 0)
        try supervisor.stop()
    }

    @Test func noClientGetsAWordUnasked() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        #expect(client.descriptorsReceived == 0)
        try supervisor.stop()
    }
}
