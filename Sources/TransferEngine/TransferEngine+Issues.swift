import EventHandlers
import EventLoop
import Glibc
import LinuxSystem
import TransferModel

/// The last issue of a client that was fetched.
struct IssueFacts: Hashable, Sendable {
    /// Empty: none was.
    var url = ""
    /// nil: it had none.
    var validator: Validator?
}

/// Issues: downloads that the process begins by itself, for clients that subscribe to them.
extension TransferEngine {
    /// The session of a client's issues.
    static let newsstand = "newsstand"
    private static let issueTag = "issue"
    /// In seconds. Looked at again after it, whatever the clock has done: the machine may have slept.
    private static let longestPause: Int64 = 3_600

    /// These, by client, replace the former subscriptions.
    func subscribe(to subscriptions: [String: Subscription]) {
        for client in issues.subscriptions.keys where subscriptions[client] == nil { dropIssue(of: client) }
        issues.replace(with: subscriptions)
        if !subscriptions.isEmpty { watchClock() }
        beginIssues()
    }

    private func watchClock() {
        guard clockWatch == nil else { return }
        do {
            let change = try ClockChangeDescriptor()
            clockWatch = try DescriptorWatch(loop, change.rawValue, .read) { [unowned self] _ in clockWasSet()
            }
            clockChange = consume change
        } catch {
            // It is noticed late.
        }
    }

    private func clockWasSet() {
        do throws(SystemError) {
            guard try clockChange?.takeChange() == true else { return }
        } catch {
            clockWatch = nil
            clockChange = nil
        }
        beginIssues()
    }

    /// When the next issue is to be begun, in seconds since 1970; nil: none is.
    var nextIssue: Int64? { issues.nextDue }

    func beginIssues() {
        let now = Int64(time(nil))
        for client in issues.follow(now) { storeIssue(of: client) }
        for client in issues.due(at: now) { beginIssue(of: client, at: now) }
        guard let next = issues.nextDue else {
            issueTimer?.deadline = nil
            return
        }
        issueTimer?.set(milliseconds: min(max(next - now, 1), Self.longestPause) * 1_000)
    }

    private func beginIssue(of client: String, at now: Int64) {
        guard let subscription = issues.subscriptions[client] else { return }
        // Otherwise the client has not taken the last one, or that waits for a good moment.
        if !hasIssue(client), !addIssue(subscription, of: client) { return issues.postpone(client, at: now) }
        issues.begin(client, at: now)
        storeIssue(of: client)
    }

    private func hasIssue(_ client: String) -> Bool {
        guard let session = sessions.id(client: client, identifier: Self.newsstand) else { return false }
        return !taskIDs(of: session).isEmpty
    }

    /// False: not now.
    private func addIssue(_ subscription: Subscription, of client: String) -> Bool {
        guard queue.hasRoomForTask else { return false }
        let session = session(client: client, identifier: Self.newsstand)
        let task = TransferTask(
            url: subscription.url, fields: fields(of: client, subscription.url), wantsDigest: true,
            isDiscretionary: true)
        let record = TransferStore.Record(
            id: store.nextTaskID(), session: session, tag: Self.issueTag, task: task, state: .waiting,
            created: elapsedSeconds, wasTried: false, facts: PartialBody(), durableBytes: 0)
        if case .added = admit(record) { return true }
        removeIfUnused(session)
        return false
    }

    /// The header fields that ask for what has changed since the last issue.
    private func fields(of client: String, _ url: TransferURL) -> [HeaderField] {
        guard let facts = issueFacts[client], facts.url == url.text else { return [] }
        switch facts.validator {
        case .entityTag(let text): return [HeaderField("If-None-Match", text)]
        case .lastModified(let text): return [HeaderField("If-Modified-Since", text)]
        case nil: return []
        }
    }

    private func storeIssue(of client: String) {
        guard let begun = issues.begun[client] else { return }
        store.setIssue(client, begun: begun, issueFacts[client] ?? IssueFacts())
    }

    func isIssue(_ task: Task) -> Bool { sessions[task.session]?.identifier == Self.newsstand }

    /// An issue that cannot be had, or is the last one again, is no reason to launch its client.
    ///
    /// - Returns: whether the task is gone.
    func endIssue(_ task: Task, _ outcome: Outcome) -> Bool {
        guard isIssue(task), let failure = outcome.failure, failure != .cancelled else { return false }
        removeTask(task.id)
        removeIfUnused(task.session)
        return true
    }

    /// The client has taken it: the next one is asked for only if it is another.
    func noteTaken(_ task: Task, _ outcome: Outcome) {
        guard isIssue(task), outcome.failure == nil, let session = sessions[task.session] else { return }
        issueFacts[session.client] = IssueFacts(
            url: task.record.task.url.text, validator: task.record.facts.validator)
        storeIssue(of: session.client)
    }

    /// The client subscribes no more: an issue that is not there yet does not come.
    private func dropIssue(of client: String) {
        guard let session = sessions.id(client: client, identifier: Self.newsstand) else { return }
        for id in taskIDs(of: session) where !isSettled(id) { removeTask(id) }
        removeIfUnused(session)
    }
}
