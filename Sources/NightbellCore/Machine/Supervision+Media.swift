/// The clients with media in one user's session.
package struct MediaFact: Sendable, Equatable {
    /// Clients with a stream that runs and is not muted; nil: unknown, because there is no PipeWire.
    package var streaming: [ClientID]?
    /// Clients that are players and say that they play (MPRIS).
    package var playing: [ClientID]

    package init(streaming: [ClientID]?, playing: [ClientID] = []) {
        self.streaming = streaming
        self.playing = playing
    }
}

/// The best evidence of a client's media.
package enum MediaWitness: Sendable, Hashable, CaseIterable {
    /// PipeWire: a stream of its.
    case stream
    /// It says so to the session (MPRIS).
    case player
    /// It says so to the supervisor.
    case word
    /// A previous supervisor knew.
    case earlier
}

/// The known media of one user's session.
struct UserMedia: Sendable, Equatable {
    /// PipeWire reports all streams, so nothing else is evidence.
    var hasStreams = false
    /// Clients with media that a report has named and that no later report has ended.
    var active: [ClientID] = []

    var isEmpty: Bool { !hasStreams && active.isEmpty }
}

/// Media activity as a fact.
///
/// A stream that runs holds off the suspension of its client, without end; once it is silent, for
/// `Budgets.mediaLapse`. If nothing is known any more, the last state holds for `Budgets.mediaHold`. Media
/// never wakes or launches a client.
extension Supervision {
    /// The users with a client that could have media now: it has the mode `audio`, and runs.
    package var mediaUsers: some Collection<UserID> { machine.wishes.media.keys }

    package func needsMedia(of user: UserID) -> Bool { machine.wishes.media[user] != nil }

    /// Whether a report has named the client, and no later one has ended its media.
    package func isReportedMedia(of client: ClientID) -> Bool {
        guard clients.contains(client.id) else { return false }
        let user = clients[client.id].user
        return mayHaveMedia(client, of: user) && machine.media[user]?.active.contains(client) == true
    }

    func couldHaveMedia(_ client: ClientID) -> Bool {
        guard clients[client.id].modes.contains(.audio) else { return false }
        return switch clients[client.id].lifecycle.stage {
        case .inactive, .active, .background, .suspending: true
        case .notRunning, .suspended, .terminating, .dormant, .launching: false
        }
    }

    mutating func countMedia(of client: ClientID, _ count: Int) {
        guard couldHaveMedia(client) else { return }
        let user = clients[client.id].user
        let left = machine.wishes.media[user, default: 0] + count
        machine.wishes.media[user] = left == 0 ? nil : left
    }

    mutating func learnMedia(
        of user: UserID, _ fact: Knowledge<MediaFact>, at now: Instant, into actions: inout ActionBuffer
    ) {
        let before = machine.media[user]?.active ?? []
        let reported = fact.value.map { $0.streaming ?? $0.playing } ?? []
        let streams = fact.value?.streaming
        let active = reported.filter { mayHaveMedia($0, of: user) }
        let isSilenceKnown = streams != nil || mutated(.silencesUnknown)
        let left = before.filter { !active.contains($0) && mayHaveMedia($0, of: user) }
        for client in left where !mutated(.hearsOldMedia) {
            catchUp(client, at: now, into: &actions)
            guard clients.contains(client.id) else { continue }
            let budgets = settings.budgets
            clients[client.id].assertions.endMedia(
                by: now + (isSilenceKnown ? budgets.mediaLapse : budgets.mediaHold))
            suspendIfIdle(client, at: now, into: &actions)
        }
        for client in active {
            catchUp(client, at: now, into: &actions)
            guard clients.contains(client.id) else { continue }
            clients[client.id].assertions.holdMedia(streams == nil ? .player : .stream)
            if isOnItsWayToSleep(client) { callBack(client, at: now, into: &actions) }
            suspendIfIdle(client, at: now, into: &actions)
        }
        let media = UserMedia(hasStreams: streams != nil, active: isSilenceKnown ? active : active + left)
        machine.media[user] = media.isEmpty ? nil : media
    }

    /// Whether a report can be about this client: it is of that user, has declared the mode, and has a
    /// process.
    private func mayHaveMedia(_ client: ClientID, of user: UserID) -> Bool {
        guard clients.contains(client.id), clients[client.id].user == user || mutated(.mixesSessions),
            clients[client.id].modes.contains(.audio)
        else { return false }
        return couldHaveMedia(client) || clients[client.id].lifecycle.state == .suspended
    }

    /// A client that sleeps is not woken by its media.
    private func isOnItsWayToSleep(_ client: ClientID) -> Bool {
        switch clients[client.id].lifecycle.stage {
        case .suspending: true
        case .suspended: mutated(.wakesForMedia)
        case .notRunning, .inactive, .active, .background, .terminating, .dormant, .launching: false
        }
    }

    /// The client says that it has media, which counts where nothing better is known. It is told if that does
    /// not keep it awake: without a stream, earlier words and the stream that has ended count only until they
    /// lapse.
    mutating func claimMedia(_ client: ClientID, at now: Instant) -> Answer {
        let hasStreams = machine.media[clients[client.id].user]?.hasStreams ?? false
        guard !hasStreams || mutated(.believesClaims) else {
            return clients[client.id].assertions.mediaEndIsOpen ? .done : .refused(.noStream)
        }
        clients[client.id].assertions.renewMedia(until: now + settings.budgets.mediaLapse)
        return .done
    }

    /// A previous supervisor knew that the client has media, and this one does not yet.
    mutating func restoreMedia(of client: ClientID, at now: Instant) {
        guard clients[client.id].assertions.mediaPlays(at: now) else { return }
        clients[client.id].assertions.endMedia(by: now + settings.budgets.mediaHold)
        machine.media[clients[client.id].user, default: UserMedia()].active.append(client)
    }
}
