import CLinux
import Glibc
import Keeper
import LinuxSystem

/// A keeper with workers that carry out commands, one a line, from the standard input that they share.

/// One line of input. At the end of input the keeper is told to end.
func readCommand(waitingFor link: KeeperLink) -> String {
    var bytes: [UInt8] = []
    while true {
        var entries = [
            pollfd(fd: 0, events: CShort(POLLIN), revents: 0),
            pollfd(fd: link.rawValue, events: CShort(POLLIN), revents: 0),
        ]
        guard poll(&entries, 2, -1) > 0 else { continue }
        if entries[1].revents != 0 { obey(link.receive(), link) }
        guard entries[0].revents != 0 else { continue }
        var byte: UInt8 = 0
        guard read(0, &byte, 1) == 1 else {
            // The test is gone. If this worker ended, the keeper would only start another one.
            kill(getppid(), SIGTERM)
            while true { obey(link.waitAndReceive(), link) }
        }
        if byte == UInt8(ascii: "\n") { return String(decoding: bytes, as: UTF8.self) }
        bytes.append(byte)
    }
}

func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(1, bytes, bytes.count)
}

/// Counts the workers that have died when they were told to stop, for all of them.
nonisolated(unsafe) var deathsAtStop: SharedStateTable?

func dieAtStop() {
    guard let table = deathsAtStop,
        let most = getenv("KEPT_DEATHS_AT_STOP").flatMap({ UInt64(String(cString: $0)) })
    else { return }
    let count = table.general(0)
    guard count < most else { return }
    table.setGeneral(0, to: count + 1)
    say("dying")
    kill(getpid(), SIGKILL)
}

func obey(_ received: KeeperLink.Received, _ link: KeeperLink) {
    switch received {
    case .item(.stop):
        dieAtStop()
        say("stopping")
        exit(0)
    case .end:
        say("orphaned")
        exit(0)
    case .item(.quiesce(let number)):
        link.send(.quiesced(number))
        say("quiesced")
        obey(link.waitAndReceive(), link)
    case .item(.cancelUpgrade(let reason)):
        say("goes on: \(reason)")
    case .item(.reload):
        say("reload \(getpid())")
    case .item, .nothing:
        break
    }
}

func work(_ startup: consuming WorkerStartup) -> Int32 {
    let link = startup.link
    let mustWait = startup.mustWait
    let isFirst = startup.isFirst
    let store = startup.takeStore()
    guard getenv("KEPT_BROKEN") == nil else {
        link.send(.failed(code: 7, "broken on purpose"))
        return 7
    }
    let sharedState: SharedStateTable
    do {
        guard let number = store.descriptor(.sharedState) else { return 1 }
        sharedState = try SharedStateTable(mapping: number)
    } catch {
        return 2
    }
    deathsAtStop = sharedState
    link.send(.ready)
    if mustWait { obey(link.waitAndReceive(), link) }
    say("worker \(getpid()) \(isFirst ? "first" : "later")")
    while true {
        let line = readCommand(waitingFor: link)
        let words = line.split(separator: " ").map(String.init)
        let number = words.count > 1 ? UInt64(words[1]) ?? 0 : 0
        let key = RecordKey(kind: 20, id: number)
        switch words.first {
        case "put":
            link.put(key, Array(words[2].utf8))
        case "pipe":
            // The reading end is kept; its text comes out of it in another worker.
            var ends: [CInt] = [-1, -1]
            guard pipe(&ends) == 0 else { return 3 }
            let text = Array(words[2].utf8)
            _ = write(ends[1], text, text.count)
            link.put(key, [], descriptor: ends[0])
            link.flush()
            close(ends[0])
            close(ends[1])
        case "linger":
            link.put(key, [], descriptor: lingering(link))
        case "nest":
            link.put(key, [], descriptor: inInput(lingering(link)))
        case "closeDevices":
            var closer = BackgroundCloser()
            for _ in 0..<number {
                closer.close(OwnedDescriptor(adopting: open("/dev/null", O_RDONLY | O_CLOEXEC)))
            }
            say("due \(closer.due != nil)")
            closer.leaveToChild()
            let lowest = open("/dev/null", O_RDONLY | O_CLOEXEC)
            say("children \(closer.childCount) open \(lowest)")
            close(lowest)
        case "openDevice":
            let lowest = open("/dev/null", O_RDONLY | O_CLOEXEC)
            say("open \(lowest)")
            close(lowest)
        case "update": link.update(key, Array(words[2].utf8))
        case "remove": link.remove(key)
        case "many":
            for id in 0..<number { link.put(RecordKey(kind: 21, id: id), Array("\(id)".utf8), descriptor: 0) }
        case "sharedState":
            sharedState.write(Int(number), SharedStateTable.Words(repeating: UInt64(words[2]) ?? 0))
        case "scribble":
            var round = sharedState.read(0).map { $0[0] } ?? 0
            for _ in 0..<1_000 {
                round += 1
                sharedState.write(0, SharedStateTable.Words(repeating: round))
            }
            say("scribbles \(getpid())")
            let keeper = getppid()
            while getppid() == keeper {
                for _ in 0..<1_000 {
                    round += 1
                    sharedState.write(0, SharedStateTable.Words(repeating: round))
                }
            }
            exit(0)
        case "values":
            let words = sharedState.read(0) ?? SharedStateTable.Words(repeating: 0)
            say("values " + words.indices.map { "\(words[$0])" }.joined(separator: " "))
        case "nonsense":
            _ = send(link.rawValue, [9, 9, 9, 9, 9], 5, 0)
        case "die": kill(getpid(), SIGKILL)
        case "exit": exit(CInt(number))
        case "hangUp":
            close(link.rawValue)
            say("hung up")
            while true { pause() }
        case "upgrade": link.send(.upgradeWanted)
        case "list":
            for key in store.keys(ofKind: 20) {
                var text = String(decoding: store.record(key) ?? [], as: UTF8.self)
                if let descriptor = store.descriptor(key) {
                    var bytes = [UInt8](repeating: 0, count: 64)
                    let count = max(0, read(descriptor, &bytes, 64))
                    text += "|" + String(decoding: bytes.prefix(count), as: UTF8.self)
                }
                say("> \(key.id)=\(text)")
            }
            say("> \(store.keys(ofKind: 21).count) more, \(store.descriptorCount) descriptors")
        case "value": say("value \(sharedState.read(Int(number)).map { $0[15] } ?? 0)")
        default: say("what is \(line)?")
        }
        link.flush()
        say("ok")
    }
}

/// A TCP connection with a long linger time, and a peer that reads nothing: closing it would block.
func lingering(_ link: KeeperLink) -> CInt {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    // Its last close would reset the connection, which nothing accepts.
    link.put(RecordKey(kind: 22, id: 0), [], descriptor: listener)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let near = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
            _ = bind(listener, address, length)
            _ = listen(listener, 1)
            getsockname(listener, address, &length)
            _ = connect(near, address, length)
        }
    }
    var option = linger(l_onoff: 1, l_linger: 600)
    setsockopt(near, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    let bytes = [UInt8](repeating: 0, count: 65_536)
    while send(near, bytes, bytes.count, Int32(MSG_DONTWAIT)) > 0 {}
    return near
}

/// A Unix socket without a peer that has a descriptor in its unread input, behind an empty packet.
func inInput(_ descriptor: CInt) -> CInt {
    var ends: [CInt] = [-1, -1]
    guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0 else { return -1 }
    let sender = SeqPacketSocket(adopting: OwnedDescriptor(adopting: ends[1]))
    do {
        guard try sender.send([]), try sender.send([1], descriptors: [descriptor]) else { return -1 }
    } catch {
        return -1
    }
    close(descriptor)
    return ends[0]
}

// MARK: Start

let arguments = CommandLine.arguments
let option = arguments.count > 2 ? arguments[arguments.count - 2] : ""
let state = CInt(arguments.last ?? "") ?? -1
if arguments.contains("--preflight") { exit(getenv("KEPT_UNFIT") == nil ? 0 : 1) }
// A pipe of the test's: a worker of a new program begins when the test has opened and closed it, and fails if
// the test writes to it.
if option == "--worker-state", let gate = getenv("KEPT_GATE") {
    let descriptor = open(gate, O_RDONLY)
    var byte: UInt8 = 0
    if read(descriptor, &byte, 1) == 1 { exit(9) }
    close(descriptor)
}
if option == "--worker-state" { exit(work(try ProgramState(reading: state).startup())) }

var policy = RestartPolicy()
policy.firstPause = 1_000_000
policy.longestPause = 20_000_000
if getenv("KEPT_PAUSES") != nil {
    policy.firstPause = 60_000_000_000
    policy.longestPause = 60_000_000_000
}
let program = Keeper.Program(path: try readLink("/proc/self/exe"), arguments: [arguments[0]])
let hooks = Keeper.Hooks(
    log: { level, text in say("\(level): \(text)") }, ready: { say("served") },
    stopping: { say("told to stop") }, thawAll: { say("thawed") }, work: work)
let keeper: Keeper
if option == "--keeper-state" {
    say("keeper again \(getpid())")
    keeper = try Keeper(
        resuming: try ProgramState(reading: state), policy: policy, program: program, hooks: hooks)
} else {
    say("keeper \(getpid())")
    var store = RecordStore()
    _ = store.put(.sharedState, [], try SharedStateTable.create(SharedStateTable.Shape(records: 8, marks: 8)))
    keeper = try Keeper(store, policy: policy, program: program, hooks: hooks)
}
let code = keeper.run()
if let failure = keeper.failure { say("failure: \(failure)") }
exit(code)
