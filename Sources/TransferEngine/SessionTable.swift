import TransferModel

/// A session of a client, with the tasks that are not released.
struct ClientSession {
    let client: String
    let identifier: String
    /// In elapsed seconds: when a connection was there last, or there was an end to tell.
    var seen: Int64
    /// How often all its tasks were finished, or one needed credentials.
    var ends: UInt64 = 0
    var connections = 0
    private(set) var tasks: Set<TaskID> = []
    /// Of those, the ones that are neither finished nor wait for credentials.
    private(set) var unsettled: Set<TaskID> = []
    private var challenged: Set<TaskID> = []
    private var tags: [String: TaskID] = [:]

    init(client: String, identifier: String, seen: Int64, ends: UInt64 = 0) {
        self.client = client
        self.identifier = identifier
        self.seen = seen
        self.ends = ends
    }

    var isWhollySettled: Bool { unsettled.isEmpty }
    var needsCredentials: Bool { !challenged.isEmpty }
    var hasSettled: Bool { unsettled.count < tasks.count }
    /// Nothing would be lost with it.
    var isUnused: Bool { tasks.isEmpty && connections == 0 }

    func task(tagged tag: String) -> TaskID? { tags[tag] }

    mutating func add(_ id: TaskID, tag: String) {
        tasks.insert(id)
        if !tag.isEmpty { tags[tag] = id }
    }

    mutating func setState(_ id: TaskID, _ state: TaskState) {
        unsettled.remove(id)
        challenged.remove(id)
        switch state {
        case .waiting: unsettled.insert(id)
        case .needsCredentials: challenged.insert(id)
        case .finished: break
        }
    }

    mutating func remove(_ id: TaskID, tag: String) {
        tasks.remove(id)
        unsettled.remove(id)
        challenged.remove(id)
        if tags[tag] == id { tags[tag] = nil }
    }
}

/// The sessions, by number and by name.
struct SessionTable {
    private struct Name: Hashable {
        let client: String
        let identifier: String
    }

    private var sessions: [SessionID: ClientSession] = [:]
    private var names: [Name: SessionID] = [:]

    subscript(id: SessionID) -> ClientSession? { sessions[id] }

    func id(client: String, identifier: String) -> SessionID? {
        names[Name(client: client, identifier: identifier)]
    }

    /// In their order.
    var ids: [SessionID] { sessions.keys.sorted() }

    func ids(of client: String) -> [SessionID] {
        sessions.filter { $0.value.client == client }.keys.sorted()
    }

    mutating func insert(_ id: SessionID, _ session: ClientSession) {
        sessions[id] = session
        names[Name(client: session.client, identifier: session.identifier)] = id
    }

    mutating func remove(_ id: SessionID) {
        guard let session = sessions.removeValue(forKey: id) else { return }
        names[Name(client: session.client, identifier: session.identifier)] = nil
    }

    /// Changes a session in its place, if there is one.
    mutating func change(_ id: SessionID, _ body: (inout ClientSession) -> Void) {
        guard let index = sessions.index(forKey: id) else { return }
        body(&sessions.values[index])
    }
}
