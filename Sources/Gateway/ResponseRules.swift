import HTTPTypes
import Hummingbird
import NIOConcurrencyHelpers

/// Rules for every response: errors are JSON, browsers take nothing for what it is not, and strangers that are
/// refused again and again wait.
struct ResponseRules: RouterMiddleware {
    private let refusals: Refusals

    init(_ limits: Limits) { refusals = Refusals(limits) }

    func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        var response: Response
        do {
            response = try await next(request, context)
        } catch let error as APIError {
            response = await refuse(error)
        } catch let error as HTTPError {
            response = await refuse(APIError(error))
        } catch let error as any HTTPResponseError {
            // Such as that of a body which is too large.
            response = await refuse(APIError(HTTPError(error.status)))
        }
        response.headers[.xContentTypeOptions] = "nosniff"
        response.headers[.contentSecurityPolicy] =
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
            + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        response.headers[.referrerPolicy] = "no-referrer"
        if response.headers[.cacheControl] == nil { response.headers[.cacheControl] = "no-store" }
        return response
    }

    private func refuse(_ error: APIError) async -> Response {
        if error.isForStrangers { await refusals.pause() }
        return error.response
    }
}

/// Refusals of requests that have neither a valid token nor an address that exists. Those beyond a rate wait,
/// and what follows on their connections is not answered meanwhile: strangers do not keep the machine busy.
private final class Refusals: Sendable {
    private let rate: RateLimit
    private let time: Duration
    /// Connections that may wait at the same time. The others are left for peers that are not refused.
    private let room: Int
    private let waiting = NIOLockedValueBox(0)

    init(_ limits: Limits) {
        rate = RateLimit(perSecond: limits.refusalsPerSecond, burst: 5 * limits.refusalsPerSecond)
        time = limits.refusalPause
        room = limits.connections / 2
    }

    func pause() async {
        guard !rate.take() else { return }
        let mayWait = waiting.withLockedValue { waiting in
            guard waiting < room else { return false }
            waiting += 1
            return true
        }
        guard mayWait else { return }
        // A cancelled request is refused without the pause.
        try? await Task.sleep(for: time)
        waiting.withLockedValue { $0 -= 1 }
    }
}

extension HTTPField.Name {
    fileprivate static let referrerPolicy = HTTPField.Name.known("Referrer-Policy")

    /// A name that is written out in the code.
    static func known(_ name: String) -> HTTPField.Name {
        guard let known = HTTPField.Name(name) else { preconditionFailure("\(name) is no header field") }
        return known
    }
}
