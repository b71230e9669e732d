"""Which stages does a request need on endpoints of their own: encode, prefill, decode?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tessera.core.headers import ENCODE_PLAN, ENCODERS, PREFILLER
from tessera.core.matching.divided import prefill_apart
from tessera.core.plugin import Decider, Handler, params, plugin
from tessera.core.types import Decision, PricedRequest, Stage
from tessera.core.work import MAX_TOLD_CHARS, EncodePlan, Work


@params
class StageProfiles:
    """Names of the profiles that choose the endpoints of each stage."""

    decode: str = "decode"
    """Whose winner gets the client's request."""
    prefill: str = "prefill"
    """Whose winner computes the prompt for it."""
    encode: str = "encode"
    """Whose winners encode media for the one that computes the prompt."""


@params
class StageDeciders:
    """Names of the plugins that say whether an optional stage runs."""

    prefill: str = ""
    """For the stage prefill; empty: it never runs."""
    encode: str = ""
    """For the stage encode; empty: it never runs."""


@plugin("disagg-profile-handler")
class DisaggProfileHandler(Handler):
    """Run the profiles of decode, prefill and encode, as far as they are there and their deciders want them.

    The winner of decode gets the client's request, and headers with the others: the
    first winner of prefill in ``x-prefiller-host-port``, all of encode in
    ``x-encoder-hosts-ports``, and from ``encode-spread-picker`` who encodes which item in
    ``x-tessera-encode-plan``. A request without media never encodes. Where an optional
    stage finds nobody the request goes on without it, as in llm-d, and the Decision says
    ``no-encode-endpoint`` or ``no-prefill-endpoint`` among its guesses; where prefill finds
    whom decode has found, that is not told to prefill for itself. Encode runs last,
    because its decider looks at who computes the prompt.

    What encoders and who prefills have in flight is given back when the answer's headers
    report it in ``x-tessera-stages`` (``tessera sidecar`` writes it; another gateway than the
    generated Envoy must send us answers' headers), at the latest at the first token.
    """

    stage_order: Literal[
        "decode-first", "prefill-first", "decode_first", "prefill_first", "decodefirst", "prefillfirst"
    ] = "decode-first"
    """``decode-first``: the decider of prefill looks at the winner of decode. ``prefill-first``: prefill always
    runs, and has no decider. The other spellings are llm-d's too."""
    profiles: StageProfiles = StageProfiles()
    """Names of the profiles."""
    deciders: StageDeciders = StageDeciders()
    """Names of the deciders."""

    def __post_init__(self) -> None:
        self._deciders: dict[Work, Decider] = {}
        self._profile_of = {
            Work.DECODE: self.profiles.decode,
            Work.PREFILL: self.profiles.prefill,
            Work.ENCODE: self.profiles.encode,
        }
        self._is_prefill_first = self.stage_order.startswith("prefill")

    def check(self) -> Iterator[tuple[str, str]]:
        """Three names, and no decider of what always runs."""
        if len(set(self._profile_of.values())) < 3:
            yield "profiles", f"got {', '.join(self._profile_of.values())}, expected three different names"
        if self._is_prefill_first and self.deciders.prefill:
            yield "deciders.prefill", "prefill always runs with stageOrder prefill-first; remove one of them"

    def check_profiles(self, profiles: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Whether there is what must be, and what a decider decides about."""
        known = ", ".join(profiles)
        if self.profiles.decode not in profiles:
            yield "profiles.decode", f"no profile is named {self.profiles.decode!r}; there are {known}"
        for work, decider in ((Work.PREFILL, self.deciders.prefill), (Work.ENCODE, self.deciders.encode)):
            if decider and self._profile_of[work] not in profiles:
                what = f"{decider!r} decides about profile {self._profile_of[work]!r}, which is not there"
                yield f"deciders.{work}", f"{what}; there are {known}"

    def deciders_named(self) -> Iterator[tuple[str, str]]:
        """Those of both optional stages, as far as they are given."""
        for work, name in ((Work.PREFILL, self.deciders.prefill), (Work.ENCODE, self.deciders.encode)):
            if name:
                yield f"deciders.{work}", name

    def bind(self, deciders: Mapping[str, Decider]) -> None:
        """Take the deciders by their names."""
        for path, name in self.deciders_named():
            if name in deciders:
                self._deciders[Work(path.rpartition(".")[2])] = deciders[name]

    def primary(self, request: PricedRequest, profiles: Sequence[str]) -> str:
        """Decode's."""
        return self.profiles.decode

    def work_of(self, profile: str) -> Work | None:
        """The stage whose profile it is."""
        return next((work for work, name in self._profile_of.items() if name == profile), None)

    def next_profile(self, request: PricedRequest, profiles: Sequence[str], done: Mapping[str, Stage]) -> str | None:
        """Decode and prefill in the order that is asked for, then encode; nothing more where decode finds nobody."""
        decode = done.get(self.profiles.decode)
        if decode is not None and not decode.winners:
            return None
        prefill = self.profiles.prefill
        if decode is None:
            is_due = self._is_prefill_first and prefill in profiles and prefill not in done
            return prefill if is_due else self.profiles.decode
        if self._runs(Work.PREFILL, profiles, done) and self._deciders[Work.PREFILL].wants(request, decode):
            return prefill
        if request.items and self._runs(Work.ENCODE, profiles, done):
            computing = self._computing(done)
            if self._deciders[Work.ENCODE].wants(request, computing):
                return self.profiles.encode
        return None

    def narrowed(self, request: PricedRequest, profile: str, done: Mapping[str, Stage]) -> PricedRequest:
        """Encoders see the items that are to be encoded apart."""
        if profile != self.profiles.encode:
            return request
        items = self._deciders[Work.ENCODE].items(request, self._computing(done))
        return replace(request, items=items)

    def request_headers(self, decision: Decision) -> Mapping[str, str]:
        """Whom the decode endpoint shall ask."""
        headers = {}
        if (prefill := prefill_apart(decision)) is not None:
            headers[PREFILLER] = prefill.winners[0].id
        if encode := decision.stage_of(Work.ENCODE):
            headers[ENCODERS] = ",".join([each.id for each in encode.winners])
            text = _plan_text(decision.priced, encode.encodes) if encode.encodes and encode.encodes.is_told else ""
            if 0 < len(text) <= MAX_TOLD_CHARS:
                headers[ENCODE_PLAN] = text
        return headers

    def _runs(self, work: Work, profiles: Sequence[str], done: Mapping[str, Stage]) -> bool:
        """Whether an optional stage is still to be asked about: encode not before all others are through."""
        name = self._profile_of[work]
        is_next = work is Work.ENCODE or self.profiles.encode not in done
        return work in self._deciders and name in profiles and name not in done and is_next

    def _computing(self, done: Mapping[str, Stage]) -> Stage:
        """The stage whose winner computes the prompt."""
        prefill = done.get(self.profiles.prefill)
        return prefill if prefill is not None and prefill.winners else done[self.profiles.decode]


def _plan_text(priced: PricedRequest, plan: EncodePlan) -> str:
    """``0=ip:port,2=ip:port;alt=ip:port,ip:port``: indices into the distinct items, prompt order.

    Distinct to who reads them: what we know to be the same, and the sidecar does not, has an index for each
    way in which it is written, and goes to one encoder, which encodes it once.
    """
    first = {each.index for each in priced.distinct_items()}
    told = [each for each in priced.items if each.item.is_respelled or each.index in first]
    indices = [(index, plan.by_item.get(each.identifier)) for index, each in enumerate(told)]
    text = ",".join([f"{index}={encoder}" for index, encoder in indices if encoder is not None])
    return f"{text};alt={','.join(plan.spares)}" if plan.spares else text
