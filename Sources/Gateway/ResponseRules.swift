import HTTPTypes
import Hummingbird

/// Rules for every response: errors are JSON, browsers take nothing for what it is not, and refusals beyond a
/// rate wait. A connection is not read meanwhile, so that peers that know no address and no token cannot keep
/// the machine busy; all others are answered at once.
struct ResponseRules: RouterMiddleware {
    private let refusals: RateLimit
    private let pause: Duration

    init(_ limits: Limits) {
        refusals = RateLimit(perSecond: limits.refusalsPerSecond, burst: 5 * limits.refusalsPerSecond)
        pause = limits.refusalPause
    }

    func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        var response: Response
        do {
            response = try await next(request, context)
        } catch let error as APIError {
            response = error.response
        } catch let error as HTTPError {
            response = APIError(error).response
        } catch let error as any HTTPResponseError {
            // Such as that of a body which is too large.
            response = APIError(HTTPError(error.status)).response
        }
        // Too many requests have a rate of their own, and need a token or an address.
        if response.status.kind == .clientError, response.status != .tooManyRequests, !refusals.take() {
            try await Task.sleep(for: pause)
        }
        response.headers[.xContentTypeOptions] = "nosniff"
        response.headers[.contentSecurityPolicy] =
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
            + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        response.headers[.referrerPolicy] = "no-referrer"
        if response.headers[.cacheControl] == nil { response.headers[.cacheControl] = "no-store" }
        return response
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
