/// The part of a response's body that is on the disk, and the facts that allow to ask for the rest.
package struct PartialBody: Hashable, Sendable {
    /// How many bytes there are, from the first on.
    package var bytes: Int64
    /// Of the whole; nil: unknown.
    package var total: Int64?
    package var validator: Validator?

    package init(bytes: Int64 = 0, total: Int64? = nil, validator: Validator? = nil) {
        self.bytes = bytes
        self.total = total
        self.validator = validator
    }

    package var isWhole: Bool { total == bytes }

    // MARK: Asking

    package enum Request: Hashable, Sendable {
        /// For the whole, whatever there is already.
        case whole
        /// For the bytes from this one on, if the representation is still the one of the validator.
        case range(from: Int64, ifRange: Validator)
        /// For nothing: all bytes were received before, and only the end was not recorded.
        case nothing
    }

    package var request: Request {
        guard let validator, validator.isStrong, bytes > 0 else { return .whole }
        if isWhole { return .nothing }
        // More than the whole: the file was damaged, or the facts are.
        if let total, bytes > total { return .whole }
        return .range(from: bytes, ifRange: validator)
    }

    // MARK: Judging the answer

    /// - Parameter asked: the request that the response answers.
    package func decide(_ head: ResponseHead, asked: Request) -> ResponseDecision {
        switch head.status {
        // 204 has no body.
        case 200..<300 where head.status != 204 && head.hasInvalidLength: return .retry(afterSeconds: nil)
        case 206: return decidePartial(head, asked: asked)
        case 200..<300:
            guard !head.isEncoded else { return .fail(.encoded) }
            return .replace(PartialBody(bytes: 0, total: head.contentLength, validator: Validator(head)))
        case 416: return decideUnsatisfied(head, asked: asked)
        case 412:
            // A condition of the client's own, unless there is a range.
            guard case .range = asked else { return .fail(.status(412)) }
            return .startOver
        case 401: return .needsCredentials
        default: return head.isPassing ? .retry(afterSeconds: head.retryAfter) : .fail(.status(head.status))
        }
    }

    private func decidePartial(_ head: ResponseHead, asked: Request) -> ResponseDecision {
        // Without the request for a range it is a mistake of the server.
        guard case .range(let first, let validator) = asked else { return .fail(.status(206)) }
        guard let range = head.contentRange, range.bytes?.lowerBound == first, !head.isEncoded,
            validator.matches(head) != false
        else { return .startOver }
        if let total, let other = range.total, total != other { return .startOver }
        // Without a length nothing tells where the rest ends.
        guard total != nil || range.total != nil else { return .startOver }
        if let last = range.bytes?.upperBound, let length = head.contentLength, last - first + 1 != length {
            return .startOver
        }
        return .append(PartialBody(bytes: first, total: range.total ?? total, validator: validator))
    }

    private func decideUnsatisfied(_ head: ResponseHead, asked: Request) -> ResponseDecision {
        guard case .range(let first, let validator) = asked else { return .fail(.status(416)) }
        // All bytes were received, but without a length to know that by.
        if total == nil, head.contentRange?.total == first, validator.matches(head) != false {
            return .complete(PartialBody(bytes: first, total: first, validator: validator))
        }
        return .startOver
    }

    // MARK: Judging the end

    /// The transport has ended the body without an error.
    package var end: BodyEnd {
        guard let total else { return .whole }
        if bytes == total { return .whole }
        return bytes < total ? .cut : .tooLong
    }
}

/// The meaning of the end of a body.
package enum BodyEnd: Hashable, Sendable {
    case whole
    /// The rest is still to be had.
    case cut
    /// The server has sent more than it said: nothing of it is trusted.
    case tooLong
}

package enum ResponseDecision: Hashable, Sendable {
    /// The body continues the part that is there.
    case append(PartialBody)
    /// The body is the whole: the part that is there is dropped.
    case replace(PartialBody)
    /// There is nothing more to receive.
    case complete(PartialBody)
    /// The part that is there is worthless: it is dropped, and the whole asked for.
    case startOver
    /// Later; with the delay that the server asks for.
    case retry(afterSeconds: Int64?)
    case needsCredentials
    case fail(TransferFailure)
}

/// The reason why a task has ended without its file.
package enum TransferFailure: Hashable, Sendable {
    case status(Int)
    /// The content is encoded, although that was not asked for.
    case encoded
    /// The SHA-256 is not the expected one, several times.
    case digest
    /// It would need more room than the user has.
    case tooLarge
    /// It was not finished in time.
    case timedOut
    /// The connection ended when the server may have done what was asked for, and it must not be asked twice.
    case interrupted
    /// The address, the redirections or the certificate will not become better.
    case refused(String)
    /// The server contradicts itself again and again.
    case inconsistent
    case cancelled
    /// The file system has failed.
    case storage
}
