import Testing
import TransferModel

@Suite("Which transfer runs next")
struct QueueTests {
    private func id(_ number: Int64) -> TaskID { TaskID(number) }

    private func queue(_ limits: TransferQueue.Limits, _ tasks: [(Int64, Int64)], host: String = "h")
        -> TransferQueue
    {
        var queue = TransferQueue(limits)
        for (task, session) in tasks { queue.add(TaskID(task), of: SessionID(session), host: host) }
        return queue
    }

    @Test("Tasks run in order, up to the limit")
    func order() {
        var queue = queue(.init(parallel: 2), [(3, 1), (1, 1), (2, 1)])
        #expect(queue.start(at: 0) == [id(1), id(2)])
        #expect(queue.start(at: 0).isEmpty)
        queue.rest(id(1))
        #expect(queue.start(at: 0) == [id(3)])
        queue.remove(id(1))
        queue.rest(id(2))
        queue.rest(id(3))
        #expect(queue.isIdle && queue.count == 2)
    }

    @Test("A session with a thousand tasks leaves room for one with a single task")
    func fairness() {
        var queue = queue(.init(parallel: 2, parallelPerHost: 2), (1...1_000).map { (Int64($0), 1) })
        #expect(queue.start(at: 0) == [id(1), id(2)])
        queue.add(id(2_000), of: SessionID(2), host: "h")
        queue.rest(id(1))
        #expect(queue.start(at: 0) == [id(2_000)])
        queue.rest(id(2_000))
        queue.rest(id(2))
        #expect(queue.start(at: 0) == [id(3), id(4)])
    }

    @Test("Very many tasks of one host cost little more each than few")
    func many() {
        let count = Int64(40_000)
        var queue = queue(.init(), (1...count).map { ($0, $0 % 3) })
        let start = ContinuousClock.now
        var running = queue.start(at: 0)
        var finished = 0
        while let task = running.popLast() {
            queue.rest(task)
            finished += 1
            running += queue.start(at: 0)
        }
        #expect(finished == count && queue.isIdle)
        // With a look at each task that waits it would take minutes.
        #expect(ContinuousClock.now - start < .seconds(20))
    }

    @Test("A busy host does not hold up others")
    func hosts() {
        var queue = queue(.init(parallel: 4, parallelPerHost: 1), [(1, 1), (2, 1)])
        queue.add(id(3), of: SessionID(1), host: "other")
        #expect(queue.start(at: 0) == [id(1), id(3)])
        queue.wait(id(1), until: 10)
        #expect(queue.start(at: 0) == [id(2)])
        queue.rest(id(2))
        #expect(queue.start(at: 9).isEmpty)
        #expect(queue.nextDeadline(after: 9) == 10)
        #expect(queue.start(at: 10) == [id(1)])
        #expect(queue.nextDeadline(after: 10) == nil)
    }

    @Test("Discretionary tasks wait for a good moment")
    func discretion() {
        var queue = TransferQueue(.init())
        queue.isGoodMoment = false
        queue.add(id(1), of: SessionID(1), host: "h", isDiscretionary: true)
        queue.add(id(2), of: SessionID(1), host: "h")
        #expect(queue.start(at: 0) == [id(2)])
        #expect(queue.hasDiscretionary)
        queue.isGoodMoment = true
        #expect(queue.start(at: 0) == [id(1)])
        queue.wait(id(1), until: 5)
        #expect(queue.hasDiscretionary)
        queue.rest(id(1))
        #expect(!queue.hasDiscretionary)
        queue.wait(id(1), until: 9)
        queue.remove(id(1))
        #expect(!queue.hasDiscretionary)
    }

    @Test("Nothing is left to do while all that waits is discretionary, and the moment is not good")
    func idleness() {
        var queue = TransferQueue(.init())
        queue.isGoodMoment = false
        queue.add(id(1), of: SessionID(1), host: "h", isDiscretionary: true)
        queue.add(id(2), of: SessionID(1), host: "h", isDiscretionary: true)
        #expect(queue.isIdle)
        queue.isGoodMoment = true
        #expect(!queue.isIdle && queue.start(at: 0) == [id(1), id(2)])
        // One that goes on, such as an upload, is something to do.
        queue.isGoodMoment = false
        queue.wait(id(1), until: 9)
        #expect(!queue.isIdle)
        queue.wait(id(2), until: 9)
        #expect(queue.isIdle)
        // So is one that does not wait for the moment, but for another attempt.
        queue.add(id(3), of: SessionID(1), host: "h")
        #expect(!queue.isIdle && queue.start(at: 0) == [id(3)])
        queue.wait(id(3), until: 9)
        #expect(!queue.isIdle)
        queue.rest(id(3))
        #expect(queue.isIdle)
    }

    @Test("Room on the disk is reserved, awaited and given back")
    func room() {
        var queue = queue(.init(diskBytes: 100), [(1, 1), (2, 1)])
        #expect(queue.start(at: 0).count == 2)
        #expect(queue.reserve(id(1), bytes: 101) == .never)
        #expect(queue.reserve(id(1), bytes: 70) == .granted)
        #expect(queue.reserve(id(2), bytes: 31) == .later)
        queue.waitForRoom(id(2), notBefore: 0)
        #expect(queue.start(at: 5).isEmpty && queue.nextDeadline(after: 5) == nil && !queue.isIdle)
        queue.shrink(id(1), to: 60)
        #expect(queue.start(at: 5) == [id(2)])
        #expect(queue.reserve(id(2), bytes: 40) == .granted)
        #expect(queue.reserved == 100)
        queue.remove(id(1))
        #expect(queue.reserved == 40)
        queue.remove(id(2))
        #expect(queue.reserved == 0 && queue.count == 0)
    }

    @Test("Any order of events keeps the limits and loses no task", arguments: 0..<200)
    func anyOrder(seed: UInt64) {
        var random = Generator(state: seed)
        var queue = TransferQueue(.init(parallel: 5, parallelPerHost: 2, diskBytes: 1_000))
        var running: Set<TaskID> = [], rest: Set<TaskID> = [], hosts: [TaskID: Int] = [:]
        var last: Int64 = 0
        for now in Int64(0)..<400 {
            switch random.next(6) {
            case 0, 1:
                last += 1
                hosts[id(last)] = random.next(4)
                queue.add(id(last), of: SessionID(Int64(random.next(3))), host: "\(hosts[id(last)] ?? 0)")
            case 2:
                guard let task = running.randomElement(using: &random) else { break }
                running.remove(task)
                queue.wait(task, until: now + Int64(random.next(20)))
            case 3:
                guard let task = running.randomElement(using: &random) else { break }
                if queue.reserve(task, bytes: Int64(random.next(400))) == .later {
                    running.remove(task)
                    queue.waitForRoom(task, notBefore: now + Int64(random.next(20)))
                }
            case 4:
                guard let task = running.randomElement(using: &random) else { break }
                running.remove(task)
                rest.insert(task)
                queue.rest(task)
            default:
                guard let task = rest.randomElement(using: &random) else { break }
                rest.remove(task)
                hosts[task] = nil
                queue.remove(task)
            }
            for task in queue.start(at: now) {
                #expect(running.insert(task).inserted && hosts[task] != nil && !rest.contains(task))
            }
            #expect(running.count <= 5 && queue.reserved <= 1_000 && queue.count == hosts.count)
            let perHost = Dictionary(grouping: running) { hosts[$0] ?? -1 }
            #expect(perHost.values.allSatisfy { $0.count <= 2 })
        }
        // All the rest can be finished, as room is given back.
        var now: Int64 = 1_000
        while let task = running.first ?? rest.first {
            running.remove(task)
            rest.remove(task)
            hosts[task] = nil
            queue.remove(task)
            now += 1
            running.formUnion(queue.start(at: now))
        }
        #expect(hosts.isEmpty && queue.isIdle && queue.count == 0)
    }

    private struct Generator: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var value = state
            value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
            value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
            return value ^ (value >> 31)
        }

        mutating func next(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }
    }

    @Test("The delay of another attempt grows, is bounded and scattered")
    func backOff() {
        let policy = RetryPolicy(first: 1_000_000_000, longest: 60_000_000_000)
        for failures in 1...100 {
            let bound = failures < 7 ? Int64(1) << (failures - 1) * 1_000_000_000 : 60_000_000_000
            for random in [0, 1, 12_345, UInt64.max] {
                let delay = policy.delay(failures: failures, random: random)
                #expect((min(bound, 60_000_000_000) / 2...min(bound, 60_000_000_000)).contains(delay))
            }
        }
        let delays = Set((0..<100).map { policy.delay(failures: 5, random: $0 &* 0x9E37_79B9_7F4A_7C15) })
        #expect(delays.count > 90)
        #expect(policy.delay(failures: 1, random: 0, askedSeconds: 30) == 30_000_000_000)
        #expect(policy.delay(failures: 1, random: 0, askedSeconds: .max) == policy.longestAsked)
        #expect(policy.delay(failures: 1, random: 0, askedSeconds: -5) == 500_000_000)
    }

    @Test("Addresses are absolute, with a host")
    func addresses() {
        #expect(TransferURL("http://a/")?.host == "a")
        #expect(TransferURL("HTTPS://user:pass@A.example:8443/x?y#z")?.host == "a.example:8443")
        #expect(TransferURL("https://[::1]:80/")?.isSecure == true)
        for text in [
            "", "a", "file:///etc/passwd", "http:/a", "http://", "http:///a", "http://:80/", "http://a b/",
        ] {
            #expect(TransferURL(text) == nil, "\(text)")
        }
    }

    @Test("Tasks that cannot be done are found before they start")
    func flaws() throws {
        let url = try #require(TransferURL("http://a/"))
        #expect(TransferTask(url: url).flaw == nil)
        #expect(TransferTask(kind: .upload, url: url, method: "POST").flaw == nil)
        #expect(TransferTask(url: url, method: "POST").flaw != nil)
        #expect(TransferTask(kind: .upload, url: url, method: "GET").flaw != nil)
        #expect(TransferTask(url: url, fields: [HeaderField("Range", "bytes=0-")]).flaw != nil)
        #expect(TransferTask(url: url, fields: [HeaderField("X-A", "b\r\nHost: c")]).flaw != nil)
        #expect(TransferTask(url: url, fields: [HeaderField("X A", "b")]).flaw != nil)
        #expect(TransferTask(url: url, expectedDigest: [1]).flaw != nil)
        let long = String(repeating: "a", count: 20_000)
        #expect(TransferTask(url: url, fields: [HeaderField("X-A", long)]).flaw != nil)
        #expect(TransferTask(kind: .upload, url: url, method: "POST").isIdempotent == false)
    }

    @Test(
        "A proxy is an address of HTTP or SOCKS, with or without its scheme",
        arguments: [
            ("proxy", true), ("proxy:3128", true), ("http://proxy:3128/", true), ("127.0.0.1:1", true),
            ("SOCKS5h://user:a@proxy:1080", true), ("http://[::1]:3128", true), ("[::1]", true),
            ("file:///etc/passwd", false), ("ftp://proxy", false), ("http://", false),
            ("http://:3128", false), ("proxy:65536", false), ("proxy:http", false),
            ("::1", false), ("[::1]3128", false), ("http://proxy/path", false), ("[]", false),
            ("proxy:+80", false), ("pro/xy@proxy", false), ("proxy?a", false), ("a b", false), ("a\n", false),
        ])
    func proxies(_ text: String, _ isOne: Bool) throws {
        let url = try #require(TransferURL("http://a/"))
        #expect((TransferTask(url: url, proxy: text).flaw == nil) == isOne)
    }

    @Test("Files that are being copied take room, and no sum is too large for it")
    func copies() {
        var queue = TransferQueue(.init(diskBytes: 1_000))
        let begun = [600, 600, .max].map { queue.beginCopy(bytes: $0) }
        #expect(begun == [true, false, false])
        queue.endCopy(bytes: 600)
        queue.add(id(1), of: SessionID(1), host: "h", reserved: 600)
        #expect(queue.reserve(id(1), bytes: .max) == .never)
        queue.add(id(2), of: SessionID(1), host: "h")
        #expect(queue.start(at: 0) == [id(1), id(2)])
        #expect(queue.reserve(id(2), bytes: 600) == .later)
        queue.waitForRoom(id(2), notBefore: 10)
        queue.remove(id(1))
        #expect(queue.start(at: 9) == [] && queue.nextDeadline(after: 9) == 10)
        #expect(queue.start(at: 10) == [id(2)])
    }
}
