import Keeper
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The observations of a client, as a record of the keeper.
enum ObservationRecordBytes {
    static func bytes(of observations: [Observation]) -> [UInt8] {
        StoredObservations.with {
            $0.observations = observations.map { observation in
                .with {
                    $0.observe = observation.subject.wire(named: observation.name).record.asField
                    if let known = observation.known {
                        $0.known = known.occurrence.wire().record.asField
                        $0.knownAtNs = known.at?.nanoseconds ?? 0
                        $0.knownNumber = known.number
                    }
                    if let latest = observation.latest {
                        let occurrence = latest.occurrence.wire(isSimulated: latest.isSimulated)
                        $0.latest = occurrence.record.asField
                        $0.latestAtNs = latest.at.nanoseconds
                        if let until = latest.heldUntil { $0.latestHeldUntilNs = until.nanoseconds }
                    }
                    if case .told(let wakeID) = observation.telling { $0.toldIn = wakeID }
                    $0.store(observation.push)
                }
            }
        }.record
    }

    static func observations(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> [Observation] {
        var observations: [Observation] = []
        for stored in try StoredObservations(key, record).observations {
            let observe = try WireObserve(key, Array(stored.observe))
            // Another version of the supervisor may have accepted it. The others are kept.
            guard let subject = Subject(observe) else { continue }
            var observation = Observation(name: observe.name, subject)
            if let known = Occurrence(try WireOccurrence(key, Array(stored.known))) {
                observation.known = Observation.Known(
                    known, at: Instant(nanoseconds: stored.knownAtNs), number: stored.knownNumber)
            }
            let latest = try WireOccurrence(key, Array(stored.latest))
            if let occurrence = Occurrence(latest) {
                observation.latest = .init(
                    occurrence, at: Instant(nanoseconds: stored.latestAtNs),
                    isSimulated: latest.isSimulated,
                    heldUntil: stored.hasLatestHeldUntilNs
                        ? Instant(nanoseconds: stored.latestHeldUntilNs) : nil)
            }
            observation.telling = stored.hasToldIn ? .told(stored.toldIn) : .pending
            observation.push = PushMemory(stored)
            observations.append(observation)
        }
        return observations
    }
}

extension Observation.Known {
    /// The occurrence that leads to it.
    fileprivate var occurrence: Occurrence {
        switch self {
        case .position(let position, _): .moved(position)
        case .inside(let isInside): isInside ? .entered : .exited
        case .presence(.absent): .disconnected
        case .presence(.present(let node)): .connected(node: node)
        case .finish: .finished
        }
    }

    fileprivate var at: Instant? {
        if case .position(_, let at) = self { at } else { nil }
    }

    fileprivate var number: UInt64 {
        switch self {
        case .finish(let number): number
        case .position, .inside, .presence: 0
        }
    }

    /// nil: nothing is known after that.
    fileprivate init?(_ occurrence: Occurrence, at instant: Instant, number: UInt64) {
        switch occurrence {
        case .moved(let position): self = .position(position, at: instant)
        case .entered: self = .inside(true)
        case .exited: self = .inside(false)
        case .connected(let node): self = .presence(.present(node: node))
        case .disconnected: self = .presence(.absent)
        case .finished: self = .finish(number)
        case .value, .pushed: return nil
        }
    }
}
